// Describes a node and the way to reach it.
#pragma once

#include <cstddef>
#include <string>

namespace dslaunch {

struct NodeTarget {
  std::string name;      // name as the user wrote it, used in every message
  std::string host;      // host name, alias in ssh_config, or address without brackets
  int port = 0;          // SSH port; 0 if not given, for ssh_config's port or 22
  std::string user;      // SSH user; empty if not given, for ssh_config's user or the caller
  size_t index = 0;      // index among the nodes of the job, in hostfile order, from 0
  bool is_here = false;  // whether the node is this machine and needs no SSH
  int component = -1;    // index of the component in a heterogeneous Slurm job; -1 in other jobs
};

}  // namespace dslaunch
