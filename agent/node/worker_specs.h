// Builds the processes to start from a node's assignment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/host/binding.h"
#include "agent/host/program.h"
#include "agent/logs/job_folder.h"
#include "proto/agent.pb.h"
#include "proto/contract/worker_env.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

struct WorkerPlan {
  std::string job_id;
  uint64_t attempt = 1;
  pb::Assignment assignment;  // of this node
  uint32_t slots = 1;
  pb::Device device = pb::DEVICE_AUTO;
  bool use_cuda = false;
  std::string rendezvous_address;  // as this node reaches it, for the choice of network interface;
                                   // empty: local
  std::string rank_socket = {};    // DSLAUNCH_RANK_SOCKET; empty: there is none
  // For GLOO_ and NCCL_SOCKET_IFNAME. Empty: by the route to rank 0's node; nullopt: they stay
  // unset.
  std::optional<std::string> network_interface = "";
  int cores = 1;  // of this node
  int max_restarts = 0;
  std::string node_name = {};             // for messages
  std::vector<std::string> devices = {};  // of the slots, by DevicesOf
  bool devices_given = false;             // chosen for this job: CUDA_VISIBLE_DEVICES is overridden
  pb::RankOptions options = {};
  std::vector<RankBinding> bindings = {};  // by slot; empty: none is bound
};

// What each slot has as its device, as CUDA_VISIBLE_DEVICES names it: of `chosen` where there are
// any, else of `visible` (the variable's value, nullptr: unset), else of all; of these two the
// `first`th and those after it. Fewer than `slots` where not so many are named, by CUDA's reading
// (ListVisibleDevices).
std::vector<std::string> DevicesOf(const google::protobuf::RepeatedField<uint32_t>& chosen,
                                   const char* visible, uint32_t first, uint32_t slots);

// The place of one slot's worker, but for the files and the network interface, which only the node
// knows. `environment` is the node's. Pure. kUsage, naming the node, where a slot that is to see
// only its own device has none.
Result<WorkerEnv> MakeWorkerEnv(const WorkerPlan& plan, const Environment& environment,
                                uint32_t local_rank);

// The node's environment with what the contract gives a worker.
Environment WithPlace(Environment environment, const WorkerEnv& worker);

// With --local_rank=N where the program takes it.
std::vector<std::string> CommandOf(const ResolvedProgram& program, int local_rank);

// One WorkerSpec per slot, with its environment: the node's, then the contract's defaults, then
// what the contract requires. What all have in common is there once. Makes the ranks' log folders.
// Fails as MakeWorkerEnv does, and with kUsage where it is more than the supervisor takes.
Result<pb::SpawnWorkers> MakeWorkerSpecs(const WorkerPlan& plan, const ResolvedProgram& program,
                                         const Environment& environment, const JobFolder& folder);

}  // namespace dslaunch
