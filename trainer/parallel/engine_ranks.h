// Which ranks an engine shares what with.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// A parameter or a buffer that several pipeline stages hold. `group` has one rank of each of these
// stages; gradients of a parameter are added up over it. `is_canonical`: this rank's copy is the
// one that norms count and checkpoints hold.
struct TiedGroup {
  std::string name;
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
  // In orders that all stages share.
  std::vector<TiedGroup> tied = {};          // parameters
  std::vector<TiedGroup> tied_buffers = {};  // the copy of the group's first rank counts
};

}  // namespace dslaunch
