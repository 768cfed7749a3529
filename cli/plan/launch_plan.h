// Converts options and hosts into nodes, slots and ranks. PlanInfo contains all facts about this
// machine that the conversion uses. All functions are pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/accelerators/accelerators.h"
#include "base/error.h"
#include "cli/launchers/start_all.h"
#include "cli/plan/batch_nodes.h"
#include "cli/plan/slurm_allocation.h"
#include "cli/request/launch_options.h"
#include "hostfiles/hostfile.h"
#include "proto/agent.pb.h"
#include "proto/contract/rank_numbering.h"

namespace dslaunch {

inline constexpr char kDefaultHostfile[] = "/job/hostfile";

// The state of this machine, as far as plans depend on it.
struct PlanInfo {
  bool default_hostfile_exists = false;  // whether kDefaultHostfile exists
  int local_gpus = 0;  // number of devices of kind `accelerator` that programs can see
  // Reason why the variables of visible devices are refused; otherwise empty.
  std::string gpu_trouble = {};
  int installed_gpus = 0;  // number of installed devices, to which the numbers in a filter refer
  int cores = 1;
  // Setting such as "CUDA_VISIBLE_DEVICES=4,5"; empty if no variable limits devices.
  std::string device_limits = {};
  std::vector<std::string> own_names = {};  // names that mean this machine in a hostfile
  std::string user = {};
  // The Slurm allocation of this process; nullopt outside of one. An error counts only if the plan
  // uses Slurm's nodes.
  Result<std::optional<SlurmAllocation>> slurm = std::optional<SlurmAllocation>();
  // Nodes of another batch system's job; nullopt outside of one.
  std::optional<BatchNodes> batch = {};
  // Kind of the devices that a job would use on this machine.
  const AcceleratorRow* accelerator = &RowOf(pb::DEVICE_CUDA);
};

struct LaunchPlan {
  Launcher launcher = Launcher::kLocal;
  // Nodes in hostfile order; the local launcher ignores host, port and user.
  std::vector<Host> nodes;
  int min_nodes = 1;    // smallest number of nodes with ranks; with fewer the job ends
  int start_nodes = 0;  // number of nodes with which the job can begin; 0 for min_nodes
  int max_nodes = 1;    // largest number of nodes with ranks: all except spares
  RankNumbering ranks;  // numbering with max_nodes nodes; with fewer nodes the job has fewer ranks
  // For kExec, the --exec_command. For launchers that start all nodes at once, the program and its
  // first arguments. Empty for other launchers.
  std::vector<std::string> exec_command;
  // Shares of all nodes in Slurm's allocation, by host; empty if the plan does not use these nodes.
  std::map<std::string, SlurmShare> slurm_shares;
  // Note for the user if slots or devices were chosen by default; otherwise empty.
  std::string slots_note;

  int world_size() const { return static_cast<int>(ranks.world_size); }
};

// Returns the numbering of the ranks of all nodes except spares, in hostfile order.
RankNumbering NumberRanksOf(const std::vector<Host>& nodes);

// Returns whether a node of this name, port (0 if not given) and user (empty if not given) is this
// machine. Such a node is started without SSH, unless the user requests SSH for all nodes.
bool IsThisMachine(const std::string& host, int port, const std::string& user,
                   const PlanInfo& info);

// Returns whether the job uses the nodes of Slurm's allocation: on request, and by default inside
// an allocation.
bool UsesSlurm(const LaunchOptions& options, const PlanInfo& info);

// Returns whether the job uses the nodes of another batch system's job, which is the default inside
// such a job. If its list is unusable, the plan's slots_note has the reason and all ranks run on
// this machine.
bool UsesBatchNodes(const LaunchOptions& options, const PlanInfo& info);

// Returns the hostfile that these options require; nullopt for no hostfile.
std::optional<std::string> HostfileFor(const LaunchOptions& options, const PlanInfo& info);

// Makes the plan. `hosts` is the content of HostfileFor(options, info), or nullopt without a
// hostfile. Takes time linear in the number of nodes. Errors are kUsage, or the error in
// info.slurm.
Result<LaunchPlan> MakeLaunchPlan(const LaunchOptions& options,
                                  const std::optional<std::vector<Host>>& hosts,
                                  const PlanInfo& info);

// Returns the world size if it is known before any node is reached; 0 for a range of nodes.
int CertainRanks(const LaunchPlan& plan);

// Returns a summary such as "2 nodes x 2 slots = 4 ranks (ssh, cpu): node1 node2, spare: node3".
// `device` is a value of --device.
std::string PlanLine(const LaunchPlan& plan, std::string_view device);

// Returns the service that joins the ranks that use MPI into one MPI_COMM_WORLD. `no_pmix` is the
// reason why a node cannot offer PMIx; empty if all nodes can. The service depends on `requested`:
// - kAuto: PMI and PMIx, or no server for a single rank. If PMIx is unavailable, PMI alone; ranks
//   that use PMIx then fail with the reason.
// - kPmix: PMI and PMIx. Fails with kUnavailable and the reason if PMIx is unavailable.
// - kPmi: PMI.
// - kNone: no server.
Result<pb::MpiService> DecideMpi(MpiChoice requested, const std::string& no_pmix, int ranks);

}  // namespace dslaunch
