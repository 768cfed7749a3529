// Converts a worker's place in the job to and from environment variables. The agent writes them and
// the trainer reads them. They are also the variables of torch.distributed, DeepSpeed and
// Accelerate.
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
// Two descriptors, "A,B", of memory files for copies of the rank's state, made with
// --memory_checkpoint. In the next attempt, the process with the same LOCAL_RANK on the node gets
// the same files.
inline constexpr char kMemoryFdsVariable[] = "DSLAUNCH_MEMORY_FDS";
inline constexpr char kMemoryCheckpointVariable[] = "DSLAUNCH_MEMORY_CHECKPOINT";
inline constexpr int kMaxMemoryCheckpoint = 1'000'000;
inline constexpr char kRecipeVariable[] = "DSLAUNCH_RECIPE";  // variable with the recipe as JSON

struct WorkerEnv {
  int rank = 0;              // rank in the job, from 0 to world_size - 1
  int local_rank = 0;        // index of the rank on this node
  int world_size = 1;        // number of ranks of the job
  int local_world_size = 1;  // number of ranks of this node
  int node_rank = 0;         // index of this node in the job (GROUP_RANK, CROSS_RANK)
  int num_nodes = 1;         // nodes of the job (GROUP_WORLD_SIZE, CROSS_SIZE)
  std::string master_addr;   // numeric address of rank 0's node
  int master_port = 0;
  std::string job_id;
  uint64_t attempt = 1;  // number, from 1, of the attempt that started the ranks
  int restart_count = 0;
  int max_restarts = 0;
  bool agent_store = false;   // true if torchrun's agent has a TCPStore at master_port
  int status_fd = -1;         // descriptor of the status pipe; -1 without a pipe
  int memory_checkpoint = 0;  // steps between two copies in memory; 0 for no copies
  // Value of kMemoryFdsVariable. FromEnviron() sets it, but Required() does not write it.
  std::optional<std::pair<int, int>> memory_fds;
  // Value of kStoreFdVariable, which Required() does not write; -1 if rank 0 opens the socket
  // itself.
  int store_fd = -1;
  std::string error_file;  // file to which torchelastic's @record writes an error
  std::string rank_dir;    // folder for the files of rank_files.h; empty for no files
  // Path of Flight Recorder's files without the rank; empty for no files.
  std::string flight_prefix;
  // Socket for connections to other ranks (rank_link.h); empty without such a socket.
  std::string rank_socket;
  // Variables that select the devices that the rank uses. If empty, the inherited values are kept.
  std::vector<std::pair<std::string, std::string>> visible_devices;
  // Value of the variables in `ifname_variables`; nullopt to keep the inherited values.
  std::optional<std::string> socket_ifname;
  std::vector<std::string> ifname_variables = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};
  std::string role = "default";        // value of ROLE_NAME
  std::optional<int> role_rank;        // rank among the role's ranks; `rank` if nullopt
  std::optional<int> role_world_size;  // number of the role's ranks; `world_size` if nullopt
  std::string run_id;                  // value of TORCHELASTIC_RUN_ID; job_id if empty
  int omp_num_threads = 1;
  bool mpi_env = false;  // true to also set OMPI_COMM_WORLD_*, as mpirun does
  // True if OMP_NUM_THREADS must override an inherited value, because it is computed from the
  // rank's cores.
  bool omp_required = false;

  // Returns whether all nodes are one machine. Only then is rank 0's address a loopback address.
  bool nodes_share_machine() const {
    return master_addr.starts_with("127.") || master_addr == "::1";
  }

  // Returns the variables of this worker that override values of the node or the user.
  std::vector<std::pair<std::string, std::string>> Required() const;
  // Returns the variables of this worker that do not override such values, because a user may have
  // set them on purpose (OMP_NUM_THREADS, *_SOCKET_IFNAME, PYTHONUNBUFFERED).
  std::vector<std::pair<std::string, std::string>> Defaults() const;

  using Getenv = std::function<const char*(const char*)>;
  // Reads a worker's place from the environment. If no such variable is set, returns the place of a
  // single rank. Fails with kUsage, naming the variable, if a value is invalid, missing or
  // contradictory.
  static Result<WorkerEnv> FromEnviron(const Getenv& getenv);
};

// Returns whether the variable `name` depends on a rank's place in the job, so that dslaunch's
// value overrides the user's value.
bool IsPlaceVariable(std::string_view name);

}  // namespace dslaunch
