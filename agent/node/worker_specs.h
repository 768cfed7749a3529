// Builds the specifications of a node's workers from the node's assignment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "agent/host/binding.h"
#include "agent/host/program.h"
#include "agent/logs/job_folder.h"
#include "proto/agent.pb.h"
#include "proto/contract/worker_env.h"
#include "proto/rendezvous.pb.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// The ranks of one attempt on a node, as the rendezvous assigned them.
struct AttemptPlace {
  uint64_t attempt = 1;
  pb::Assignment assignment = {};      // ranks that the rendezvous assigned to this node
  pb::Device device = pb::DEVICE_CPU;  // kind of the ranks' devices; DEVICE_CPU without devices
  // Address of the rendezvous as this node reaches it; empty if the rendezvous is in this process.
  std::string rendezvous_address = {};
  std::string rank_socket = {};  // DSLAUNCH_RANK_SOCKET of the ranks; empty if unset
};

// Facts about the node that its workers need in addition to the job's specification.
struct WorkerPlan {
  AttemptPlace place;
  uint32_t slots = 1;
  std::string node_name = {};             // name of the node for messages
  int cores = 1;                          // number of this node's usable cores
  std::vector<std::string> devices = {};  // names of the slots' devices, from NamesOfSlots()
  // Whether devices were chosen for this job, which overrides variables such as
  // CUDA_VISIBLE_DEVICES.
  bool devices_given = false;
  // Network interface for GLOO_SOCKET_IFNAME and similar variables. If empty, the route to rank 0's
  // node determines the interface. If nullopt, the variables stay unset.
  std::optional<std::string> network_interface = "";
  std::vector<RankBinding> bindings = {};  // bindings by slot; empty if no rank is bound
};

// Returns a function that looks up variables in `environment`, which must outlive the function.
inline LookUpVariable LookUpIn(const Environment& environment) {
  return [&environment](const char* name) { return FindVariable(environment, name); };
}

// Returns the plan of a node without network_interface and bindings. `environment` is the ranks'
// environment without the variables that depend on the rank, and `cores` the number of the node's
// cores. `numbered` contains the node's devices from NumberedDevices(); empty if unknown. Pure.
WorkerPlan PlanWorkers(const pb::PrepareRequest& prepare, const pb::Node& own_node,
                       const AttemptPlace& place, const Environment& environment, int cores,
                       const std::vector<Accelerator>& numbered = {});

// Returns the names of the variables that select the network interface for ranks with devices of
// this kind.
std::vector<std::string> IfnameVariables(pb::Device device);

// Returns the variables of one slot's worker, except the variables for files and for the network
// interface, which only the node can determine. `environment` is the node's environment. Fails with
// kUsage, naming the node, if a slot may see only its own device and has no device. Pure.
Result<WorkerEnv> MakeWorkerEnv(const pb::JobSpec& job, const WorkerPlan& plan,
                                const Environment& environment, uint32_t local_rank);

// Returns the node's environment together with the variables that the contract defines for a
// worker.
Environment WithPlace(Environment environment, const WorkerEnv& worker);

// Returns the words of the command. Includes --local_rank=N if the program has that option.
std::vector<std::string> CommandOf(const ResolvedProgram& program, int local_rank);

// Returns a WorkerSpec for each slot. Its environment consists of the node's environment, the
// contract's defaults, and the variables that the contract requires, in this order. Variables that
// all slots share are stored once. Creates the ranks' log folders. Fails as MakeWorkerEnv() does,
// and with kUsage if the result is larger than the supervisor accepts.
Result<pb::SpawnWorkers> MakeWorkerSpecs(const pb::JobSpec& job, const WorkerPlan& plan,
                                         const ResolvedProgram& program,
                                         const Environment& environment, const JobFolder& folder);

}  // namespace dslaunch
