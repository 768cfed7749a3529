// From options and hosts to who runs where. Pure: everything it needs to know about this machine
// comes as info.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// What is true of this machine.
struct PlanInfo {
  bool default_hostfile_exists = false;  // kDefaultHostfile
  int local_gpus = 0;                    // that a program sees under visible_devices
  std::string gpu_trouble = {};          // why visible_devices is refused; else empty
  int installed_gpus = 0;
  int cores = 1;
  std::optional<std::string> visible_devices = {};  // CUDA_VISIBLE_DEVICES; nullopt: unset
  std::vector<std::string> own_names = {};          // by which a hostfile may name it
  std::string user = {};
  // The allocation that this process is in; an error matters only where its nodes are to be used.
  Result<std::optional<SlurmAllocation>> slurm = std::optional<SlurmAllocation>();
  std::optional<BatchNodes> batch = {};  // of another batch system
};

struct LaunchPlan {
  Launcher launcher = Launcher::kLocal;
  std::vector<Host> nodes;  // in hostfile order; the local launcher uses no host, port and user
  int min_nodes = 1;        // with ranks, below which the job ends
  int start_nodes = 0;      // that must be there for it to begin; 0: min_nodes
  int max_nodes = 1;        // with ranks: as many as are no spares
  RankNumbering ranks;      // of all of those; with fewer nodes there are fewer ranks
  // Of kExec the --exec_command. Of launchers that start all nodes at once their program with its
  // first arguments. Else empty.
  std::vector<std::string> exec_command;
  // Of all nodes of Slurm's allocation, by host; empty if the plan does not use its nodes.
  std::map<std::string, SlurmShare> slurm_shares;
  std::string slots_note;  // how slots or devices were chosen that no option gave; else empty

  int world_size() const { return static_cast<int>(ranks.world_size); }
};

// Numbers the ranks of the nodes that are no spares.
RankNumbering NumberRanksOf(const std::vector<Host>& nodes);

// Whether a node of this name, port (0: not given) and user (empty: not given) is this machine.
// It is started without SSH, alone or among others, unless all are to be reached over SSH.
bool IsThisMachine(const std::string& host, int port, const std::string& user,
                   const PlanInfo& info);

// Whether the nodes are those of Slurm's allocation: where that is asked for, and by default in
// one.
bool UsesSlurm(const LaunchOptions& options, const PlanInfo& info);

// Whether the nodes are those of another batch system's job: by default in one. Its list may be
// unusable; then the plan says so, and all ranks run on this machine.
bool UsesBatchNodes(const LaunchOptions& options, const PlanInfo& info);

// The hostfile to read for these options; nullopt: none.
std::optional<std::string> HostfileFor(const LaunchOptions& options, const PlanInfo& info);

// `hosts` is the content of HostfileFor(options, info), nullopt without one. Linear in the number
// of nodes. Errors are kUsage, or info.slurm's.
Result<LaunchPlan> MakeLaunchPlan(const LaunchOptions& options,
                                  const std::optional<std::vector<Host>>& hosts,
                                  const PlanInfo& info);

// The world size, where it is known before any node is reached; 0 where a range of nodes may do.
int CertainRanks(const LaunchPlan& plan);

// "2 nodes x 2 slots = 4 ranks (ssh, cpu): node1 node2, spare: node3". `device` is "cpu" or "cuda".
std::string PlanLine(const LaunchPlan& plan, std::string_view device);

// What a node said about itself.
struct NodeGpus {
  std::string name;
  int slots = 0;
  int gpus = 0;
  int last_device = -1;  // of those that a filter chose
};

struct DeviceDecision {
  bool use_cuda = false;
  std::string reason;  // one sentence for the user
};

// Returns what joins the ranks that use MPI into one MPI_COMM_WORLD. `no_pmix`: the first reason of
// a node for which ranks that speak PMIx cannot be joined; empty: they can. `auto` offers PMI and
// PMIx to several ranks, or PMI alone where PMIx cannot be had, and ranks that speak PMIx then fail
// with the reason; a single rank needs no server. With `pmix` the reason is an error: kUnavailable.
// `pmi` needs nothing.
Result<pb::MpiService> DecideMpi(MpiChoice requested, const std::string& no_pmix, int ranks);

// `auto` takes CUDA when every node has a GPU for each slot, CPU when no node has any, and refuses
// what lies between; so does `cuda` with too few. With `one_machine` (the local launcher) the nodes
// share its GPUs. Errors are kUsage and name the nodes.
Result<DeviceDecision> DecideDevice(pb::Device requested, const std::vector<NodeGpus>& nodes,
                                    bool one_machine);

}  // namespace dslaunch
