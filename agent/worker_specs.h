// From a node's assignment to the processes it starts.
#pragma once

#include <string>

#include "agent/job_folder.h"
#include "agent/program.h"
#include "proto/agent.pb.h"
#include "proto/keeper.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

struct WorkerPlan {
  std::string job_id;
  uint64_t epoch = 1;
  pb::Assignment assignment;  // of this node
  uint32_t slots = 1;
  pb::Device device = pb::DEVICE_AUTO;
  bool use_cuda = false;
  uint32_t first_device = 0;       // of this node's GPUs; several nodes of one machine share them
  std::string rendezvous_address;  // as this node reaches it, for the choice of network interface;
                                   // empty: local
  int cores = 1;                   // of this node
  int max_restarts = 0;
};

// One WorkerSpec per slot, with its environment: the node's, then the contract's defaults, then
// what the contract requires. Makes the ranks' log folders.
Result<pb::SpawnWorkers> MakeWorkerSpecs(const WorkerPlan& plan, const ResolvedProgram& program,
                                         const Environment& environment, const JobFolder& folder);

}  // namespace dslaunch
