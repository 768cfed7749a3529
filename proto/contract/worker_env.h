// Converts a worker's place in the job to and from environment variables. The agent writes them and
// the trainer reads them. Programs that use torch.distributed, DeepSpeed or Accelerate understand
// them too.
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
// A descriptor that already listens at MASTER_PORT. Set only for rank 0, by --master_listen_fd and
// by the SDK's Spawn.
inline constexpr char kStoreFdVariable[] = "DSLAUNCH_STORE_FD";
// Descriptors "A,B" of memory files for copies of the rank's state, made with --memory_checkpoint.
// In the next attempt, the process with the same LOCAL_RANK on the node gets the same files.
inline constexpr char kMemoryFdsVariable[] = "DSLAUNCH_MEMORY_FDS";
inline constexpr char kMemoryCheckpointVariable[] = "DSLAUNCH_MEMORY_CHECKPOINT";
inline constexpr int kMaxMemoryCheckpoint = 1'000'000;
inline constexpr char kRecipeVariable[] = "DSLAUNCH_RECIPE";  // recipe as JSON, for dslaunch-train

struct WorkerEnv {
  int rank = 0;              // from 0 to world_size - 1, in hostfile order
  int local_rank = 0;        // index of the rank on this node
  int world_size = 1;        // number of ranks of the job
  int local_world_size = 1;  // number of ranks of this node
  int node_rank = 0;         // index of this node among the job's nodes (GROUP_RANK, CROSS_RANK)
  int num_nodes = 1;         // number of nodes of the job (GROUP_WORLD_SIZE, CROSS_SIZE)
  std::string master_addr;   // numeric address of rank 0's node
  int master_port = 0;
  std::string job_id;
  uint64_t attempt = 1;  // number of the start of all ranks, from 1
  int restart_count = 0;
  int max_restarts = 0;
  bool agent_store = false;   // true if torchrun's agent has a TCPStore at master_port
  int status_fd = -1;         // descriptor of the status pipe; -1 if there is none
  int memory_checkpoint = 0;  // steps between two copies of the state in memory; 0: no copies
  std::optional<std::pair<int, int>> memory_fds;  // value of kMemoryFdsVariable, which is only read
  int store_fd = -1;          // value of kStoreFdVariable, only read; -1: rank 0 listens itself
  std::string error_file;     // file for the error.json of torchelastic's @record
  std::string rank_dir;       // folder for the files of dslaunch report (rank_files.h); empty: none
  std::string flight_prefix;  // path of Flight Recorder's files, without the rank; empty: none
  std::string rank_socket;    // socket for connections to other ranks (rank_link.h); empty: none
  // Variables that select the devices that the rank sees. Empty: keep the inherited values.
  std::vector<std::pair<std::string, std::string>> visible_devices;
  // Value of the variables in `ifname_variables`; nullopt: keep the inherited values.
  std::optional<std::string> socket_ifname;
  std::vector<std::string> ifname_variables = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};
  std::string role = "default";        // value of ROLE_NAME
  std::optional<int> role_rank;        // rank among the ranks of the role; nullopt: `rank`
  std::optional<int> role_world_size;  // number of ranks of the role; nullopt: `world_size`
  std::string run_id;                  // value of TORCHELASTIC_RUN_ID; empty: job_id
  int omp_num_threads = 1;
  bool mpi_env = false;  // true to also set OMPI_COMM_WORLD_*, for programs that expect mpirun
  // True if OMP_NUM_THREADS overrides an inherited value, because the number follows from the
  // rank's cores.
  bool omp_required = false;

  // Returns whether all nodes are one machine, because only then is rank 0's address a loopback
  // address.
  bool nodes_share_machine() const {
    return master_addr.starts_with("127.") || master_addr == "::1";
  }

  // Return the variables of this worker. The values of Required() override those of the node or the
  // user. The values of Defaults() do not, because a user may have set these variables on purpose
  // (OMP_NUM_THREADS, *_SOCKET_IFNAME, PYTHONUNBUFFERED).
  std::vector<std::pair<std::string, std::string>> Required() const;
  std::vector<std::pair<std::string, std::string>> Defaults() const;

  using Getenv = std::function<const char*(const char*)>;
  // Reads a worker's place from the environment. If none of the variables is set, returns a world
  // of one rank. Fails with kUsage, naming the variable, if a value is invalid, missing or
  // contradictory.
  static Result<WorkerEnv> FromEnviron(const Getenv& getenv);
};

// Returns whether the variable `name` depends on a rank's place in the job, so that it overrides
// any value from the user.
bool IsPlaceVariable(std::string_view name);

}  // namespace dslaunch
