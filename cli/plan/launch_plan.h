// Turns options and hosts into nodes, slots and ranks. Pure: what it needs to know of this machine
// is in PlanInfo.
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

// The state of this machine.
struct PlanInfo {
  bool default_hostfile_exists = false;  // kDefaultHostfile
  int local_gpus = 0;                    // devices of that kind that are visible to a program
  std::string gpu_trouble = {};  // why the variables of visible devices are refused; else empty
  int installed_gpus = 0;        // devices that a filter's numbers count
  int cores = 1;
  std::string device_limits = {};  // "CUDA_VISIBLE_DEVICES=4,5"; empty: no variable limits devices
  std::vector<std::string> own_names = {};  // names of this machine in a hostfile
  std::string user = {};
  // The allocation that this process is in. An error matters only if its nodes are to be used.
  Result<std::optional<SlurmAllocation>> slurm = std::optional<SlurmAllocation>();
  std::optional<BatchNodes> batch = {};  // nodes given by another batch system
  // Kind of the devices that a job would use on this machine.
  const AcceleratorRow* accelerator = &RowOf(pb::DEVICE_CUDA);
};

struct LaunchPlan {
  Launcher launcher = Launcher::kLocal;
  std::vector<Host> nodes;  // in hostfile order; the local launcher uses no host, port and user
  int min_nodes = 1;        // nodes with ranks; the job ends if there are fewer
  int start_nodes = 0;      // nodes with which the job can begin; 0: min_nodes
  int max_nodes = 1;        // nodes with ranks: all except spares
  RankNumbering ranks;      // numbering with max_nodes nodes; fewer nodes have fewer ranks
  // The --exec_command for kExec; the program and its first arguments for launchers that start all
  // nodes at once; else empty.
  std::vector<std::string> exec_command;
  // Shares of all nodes of Slurm's allocation, by host; empty if the plan does not use these nodes.
  std::map<std::string, SlurmShare> slurm_shares;
  // Note for the user if slots or devices were chosen by default; else empty.
  std::string slots_note;

  int world_size() const { return static_cast<int>(ranks.world_size); }
};

// Numbers the ranks of the nodes except spares.
RankNumbering NumberRanksOf(const std::vector<Host>& nodes);

// Whether a node of this name, port (0: not given) and user (empty: not given) is this machine.
// Such a node is started without SSH, unless the user wants SSH for all nodes.
bool IsThisMachine(const std::string& host, int port, const std::string& user,
                   const PlanInfo& info);

// Whether the job uses the nodes of Slurm's allocation: on request, and by default inside one.
bool UsesSlurm(const LaunchOptions& options, const PlanInfo& info);

// Whether the job uses the nodes of another batch system's job: by default inside one. If its list
// is unusable, the plan's slots_note has the reason and all ranks run on this machine.
bool UsesBatchNodes(const LaunchOptions& options, const PlanInfo& info);

// Returns the hostfile to read for these options; nullopt: none.
std::optional<std::string> HostfileFor(const LaunchOptions& options, const PlanInfo& info);

// Makes the plan. `hosts`: the content of HostfileFor(options, info), nullopt without one. Linear
// in the number of nodes. Errors are kUsage, or info.slurm's.
Result<LaunchPlan> MakeLaunchPlan(const LaunchOptions& options,
                                  const std::optional<std::vector<Host>>& hosts,
                                  const PlanInfo& info);

// Returns the world size if it is known before any node is reached; 0 for a range of nodes.
int CertainRanks(const LaunchPlan& plan);

// Returns "2 nodes x 2 slots = 4 ranks (ssh, cpu): node1 node2, spare: node3". `device`: as for
// --device.
std::string PlanLine(const LaunchPlan& plan, std::string_view device);

// Returns what joins the ranks that use MPI into one MPI_COMM_WORLD. `no_pmix`: the first reason of
// a node for which ranks that speak PMIx cannot be joined; empty: they can. `auto` offers PMI and
// PMIx to several ranks, or PMI alone if PMIx is unavailable, and ranks that speak PMIx then fail
// with the reason; a single rank needs no server. With `pmix` the reason is an error: kUnavailable.
// `pmi` needs nothing.
Result<pb::MpiService> DecideMpi(MpiChoice requested, const std::string& no_pmix, int ranks);

}  // namespace dslaunch
