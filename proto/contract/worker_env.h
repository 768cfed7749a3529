// A worker's place in the job as environment variables, for both directions: the agent writes them,
// the trainer reads them, and programs that use torch.distributed, DeepSpeed or Accelerate
// understand them.
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
inline constexpr char kAttemptAlias[] = "DSLAUNCH_EPOCH";  // former name of kAttemptVariable
inline constexpr char kStatusFdVariable[] = "DSLAUNCH_STATUS_FD";
// Set only for rank 0, by --master_listen_fd and by the SDK's Spawn: a descriptor that already
// listens at MASTER_PORT.
inline constexpr char kStoreFdVariable[] = "DSLAUNCH_STORE_FD";
// Descriptors "A,B" of memory files, made with --memory_checkpoint, for copies of the rank's state.
// The next attempt's process of the same LOCAL_RANK on the node gets the same files.
inline constexpr char kMemoryFdsVariable[] = "DSLAUNCH_MEMORY_FDS";
inline constexpr char kMemoryCheckpointVariable[] = "DSLAUNCH_MEMORY_CHECKPOINT";
inline constexpr int kMaxMemoryCheckpoint = 1'000'000;
inline constexpr char kRecipeVariable[] =
    "DSLAUNCH_RECIPE";  // the recipe as JSON, for dslaunch-train

struct WorkerEnv {
  int rank = 0;              // 0 .. world_size - 1, in hostfile order
  int local_rank = 0;        // position on this node
  int world_size = 1;        // ranks of the job
  int local_world_size = 1;  // ranks of this node
  int node_rank = 0;         // position of this node among the job's nodes (GROUP_RANK, CROSS_RANK)
  int num_nodes = 1;         // nodes of the job (GROUP_WORLD_SIZE, CROSS_SIZE)
  std::string master_addr;   // numeric address of rank 0's node
  int master_port = 0;
  std::string job_id;
  uint64_t attempt = 1;  // 1 for the first start of the ranks
  int restart_count = 0;
  int max_restarts = 0;
  bool agent_store = false;   // a TCPStore already listens at master_port (torchrun's agent)
  int status_fd = -1;         // -1: no status pipe
  int memory_checkpoint = 0;  // steps between two copies of the state in memory; 0: none
  std::optional<std::pair<int, int>> memory_fds;  // value of kMemoryFdsVariable, read only
  int store_fd = -1;          // value of kStoreFdVariable, read only; -1: rank 0 listens itself
  std::string error_file;     // file for the error.json of torchelastic's @record
  std::string rank_dir;       // folder for the files of dslaunch report (rank_files.h); empty: none
  std::string flight_prefix;  // path of Flight Recorder's pipe and dump, without rank; empty: none
  std::string rank_socket;  // socket for connections to other ranks (rank_link.h); empty: no agent
                            // provides any
  // Variables that choose the devices which the rank sees. Empty: keep the inherited values.
  std::vector<std::pair<std::string, std::string>> visible_devices;
  // Value of `ifname_variables`; nullopt: keep the inherited values.
  std::optional<std::string> socket_ifname;
  std::vector<std::string> ifname_variables = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};
  std::string role = "default";        // ROLE_NAME
  std::optional<int> role_rank;        // rank among the ranks of that role; nullopt: `rank`
  std::optional<int> role_world_size;  // nullopt: `world_size`
  std::string run_id;                  // TORCHELASTIC_RUN_ID; empty: job_id
  int omp_num_threads = 1;
  bool mpi_env = false;       // also set OMPI_COMM_WORLD_*, for programs that expect mpirun
  bool omp_required = false;  // OMP_NUM_THREADS overrides an inherited value, because it follows
                              // from the rank's cores

  // Returns whether all nodes are one machine: only then is rank 0's address a loopback one.
  bool nodes_share_machine() const {
    return master_addr.starts_with("127.") || master_addr == "::1";
  }

  // Return the variables of this worker. Required() overrides what the node or the user has set.
  // Defaults() does not, because a user may have set those variables on purpose (OMP_NUM_THREADS,
  // *_SOCKET_IFNAME, PYTHONUNBUFFERED).
  std::vector<std::pair<std::string, std::string>> Required() const;
  std::vector<std::pair<std::string, std::string>> Defaults() const;

  using Getenv = std::function<const char*(const char*)>;
  // Reads a worker's place from the environment. If none of the variables is set, returns a world
  // of one rank. An invalid, missing or contradictory value is kUsage; the message names the
  // variable.
  static Result<WorkerEnv> FromEnviron(const Getenv& getenv);
};

// Returns whether a variable of this name depends on a rank's place in the job and therefore
// overrides any value from the user.
bool IsPlaceVariable(std::string_view name);

}  // namespace dslaunch
