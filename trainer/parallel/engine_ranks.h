// Which ranks an engine shares what with.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Gradients of a parameter that several pipeline stages hold are added up over `group`, which has
// one rank of each of these stages. `is_canonical`: this rank's copy is the one that norms count
// and checkpoints hold.
struct TiedGroup {
  std::string parameter;
  const ProcessGroup* group = nullptr;
  bool is_canonical = true;
};

// All must outlive the engine.
struct EngineRanks {
  const ProcessGroup* world = nullptr;     // all of the job
  const ProcessGroup* replicas = nullptr;  // those that hold the same parameters; `world` without
                                           // a pipeline
  int stage = 0;                           // for messages
  int stages = 1;
  std::vector<TiedGroup> tied = {};  // in an order that all stages share
};

}  // namespace dslaunch
