// Makes a process group without other ranks, which needs no environment.
#pragma once

#include "dslaunch/process_group.h"
#include "proto/contract/worker_env.h"

namespace dslaunch {

inline ProcessGroup& World() {
  static ProcessGroup* group = [] {
    WorkerEnv env;
    env.master_addr = "127.0.0.1";
    return new ProcessGroup(env);
  }();
  return *group;
}

}  // namespace dslaunch
