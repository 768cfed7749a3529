// A worker's place in the job, as it travels through environment variables. Both directions in one
// file: the agent writes it, the trainer reads it, and every program under torch.distributed,
// DeepSpeed or Accelerate understands it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "proto/contract/rank_link.h"

namespace dslaunch {

inline constexpr char kJobIdVariable[] = "DSLAUNCH_JOB_ID";
inline constexpr char kAttemptVariable[] = "DSLAUNCH_ATTEMPT";
inline constexpr char kAttemptAlias[] = "DSLAUNCH_EPOCH";  // the same, under its former name
inline constexpr char kStatusFdVariable[] = "DSLAUNCH_STATUS_FD";
// Only in the environment of rank 0, of --master_listen_fd and of the SDK's Spawn: a descriptor
// that listens at MASTER_PORT already.
inline constexpr char kStoreFdVariable[] = "DSLAUNCH_STORE_FD";
inline constexpr char kRecipeVariable[] =
    "DSLAUNCH_RECIPE";  // the recipe as JSON text, for dslaunch-train

struct WorkerEnv {
  int rank = 0;              // 0 .. world_size - 1, in hostfile order
  int local_rank = 0;        // position on this node
  int world_size = 1;        // ranks of the job
  int local_world_size = 1;  // ranks of this node
  int node_rank = 0;         // position of this node among the nodes (GROUP_RANK, CROSS_RANK)
  int num_nodes = 1;         // nodes of the job (GROUP_WORLD_SIZE, CROSS_SIZE)
  std::string master_addr;   // numeric address of rank 0's node
  int master_port = 0;
  std::string job_id;
  uint64_t attempt = 1;  // 1 for the first start of the job's ranks
  int restart_count = 0;
  int max_restarts = 0;
  bool agent_store = false;  // a TCPStore listens at master_port already (torchrun's agent)
  int status_fd = -1;        // -1: no status pipe
  int store_fd = -1;         // read only: of kStoreFdVariable; -1: rank 0 listens itself
  std::string error_file;    // where torchelastic's @record writes its error.json
  std::string rank_dir;      // for what dslaunch report reads (rank_files.h); empty: there is none
  std::string rank_socket;   // for connections to other ranks (rank_link.h); empty: there is no
                             // agent for them
  std::optional<std::string> cuda_visible_devices;  // nullopt: leave as inherited
  std::optional<std::string> socket_ifname;  // for GLOO_ and NCCL_SOCKET_IFNAME; nullopt: leave
  std::string role = "default";              // ROLE_NAME
  std::optional<int> role_rank;              // among the ranks of that role; nullopt: `rank`
  std::optional<int> role_world_size;        // nullopt: `world_size`
  std::string run_id;                        // TORCHELASTIC_RUN_ID; empty: job_id
  int omp_num_threads = 1;
  bool mpi_env = false;       // OMPI_COMM_WORLD_* too, for programs that look for mpirun's
  bool omp_required = false;  // OMP_NUM_THREADS overrides too: it follows from the rank's cores

  // The variables of this worker. The first list always overrides what the node or the user has;
  // the second gives defaults, for variables that a user may have set on purpose (OMP_NUM_THREADS,
  // *_SOCKET_IFNAME, PYTHONUNBUFFERED).
  std::vector<std::pair<std::string, std::string>> Required() const;
  std::vector<std::pair<std::string, std::string>> Defaults() const;

  using Getenv = std::function<const char*(const char*)>;
  // Reads the variables a worker needs to take its place; with none of them set the answer is a
  // world of one. An unparsable, missing or contradictory value is kUsage and names the variable.
  static Result<WorkerEnv> FromEnviron(const Getenv& getenv);
};

// Whether every rank has a variable of this name by its place in the job, whatever a user gives it.
bool IsPlaceVariable(std::string_view name);

}  // namespace dslaunch
