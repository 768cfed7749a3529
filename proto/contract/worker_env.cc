#include "proto/contract/worker_env.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <string_view>

#include "base/text/sanitize.h"
#include "proto/contract/rank_files.h"

namespace dslaunch {
namespace {

constexpr char kAgentStoreVariable[] = "TORCHELASTIC_USE_AGENT_STORE";
constexpr char kNodeRankVariable[] = "GROUP_RANK";
constexpr char kNumNodesVariable[] = "GROUP_WORLD_SIZE";
constexpr char kOmpVariable[] = "OMP_NUM_THREADS";
constexpr char kRestartCountVariable[] = "TORCHELASTIC_RESTART_COUNT";

Error BadVariable(const char* name, const std::string& why) {
  return Error{ExitCode::kUsage, std::string("environment variable ") + name + " " + why +
                                     "; start the program with dslaunch, which sets it"};
}

Result<int> ReadInt(const WorkerEnv::Getenv& getenv, const char* name, int min, int max) {
  const char* text = getenv(name);
  if (text == nullptr) return BadVariable(name, "is missing while others of the job are set");
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, status] = std::from_chars(text, end, value);
  if (status != std::errc() || stop != end || value < min || value > max) {
    return BadVariable(name, "is " + Quoted(text) + ", not a number from " + std::to_string(min) +
                                 " to " + std::to_string(max));
  }
  return value;
}

// Parses a pair of descriptors, "A,B". Fails unless both are at least 3.
Result<std::pair<int, int>> ReadFds(const char* name, std::string_view text) {
  std::pair<int, int> fds;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, fds.first);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == ',') {
    const auto second = std::from_chars(first.ptr + 1, end, fds.second);
    if (second.ec == std::errc() && second.ptr == end && fds.first >= 3 && fds.second >= 3)
      return fds;
  }
  return BadVariable(name, "is " + Quoted(text) + ", not two descriptors");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> WorkerEnv::Required() const {
  const auto number = [](auto n) { return std::to_string(n); };
  std::vector<std::pair<std::string, std::string>> env = {
      {"RANK", number(rank)},
      {"LOCAL_RANK", number(local_rank)},
      {"WORLD_SIZE", number(world_size)},
      {"LOCAL_WORLD_SIZE", number(local_world_size)},
      {kNodeRankVariable, number(node_rank)},
      {kNumNodesVariable, number(num_nodes)},
      {"ROLE_RANK", number(role_rank.value_or(rank))},
      {"ROLE_WORLD_SIZE", number(role_world_size.value_or(world_size))},
      {"ROLE_NAME", role},
      {"LOCAL_SIZE", number(local_world_size)},
      {"CROSS_RANK", number(node_rank)},
      {"CROSS_SIZE", number(num_nodes)},
      {"MASTER_ADDR", master_addr},
      {"MASTER_PORT", number(master_port)},
      {kRestartCountVariable, number(restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", number(max_restarts)},
      {"TORCHELASTIC_RUN_ID", run_id.empty() ? job_id : run_id},
      {kAgentStoreVariable, "False"},  // rank 0 hosts the TCPStore itself, not the agent
      {"TORCHELASTIC_ERROR_FILE", error_file},
      {kJobIdVariable, job_id},
      {kAttemptVariable, number(attempt)},
      {kAttemptAlias, number(attempt)},
      {kRankDirVariable, rank_dir},
      {kRankSocketVariable, rank_socket},
  };
  if (mpi_env) {
    env.emplace_back("OMPI_COMM_WORLD_RANK", number(rank));
    env.emplace_back("OMPI_COMM_WORLD_SIZE", number(world_size));
    env.emplace_back("OMPI_COMM_WORLD_LOCAL_RANK", number(local_rank));
    env.emplace_back("OMPI_COMM_WORLD_LOCAL_SIZE", number(local_world_size));
    env.emplace_back("OMPI_COMM_WORLD_NODE_RANK", number(local_rank));
  }
  if (memory_checkpoint > 0) env.emplace_back(kMemoryCheckpointVariable, number(memory_checkpoint));
  if (status_fd >= 0) env.emplace_back(kStatusFdVariable, number(status_fd));
  if (omp_required) env.emplace_back(kOmpVariable, number(omp_num_threads));
  env.insert(env.end(), visible_devices.begin(), visible_devices.end());
  return env;
}

std::vector<std::pair<std::string, std::string>> WorkerEnv::Defaults() const {
  std::vector<std::pair<std::string, std::string>> env = {
      {kOmpVariable, std::to_string(omp_num_threads)},
      {"PYTHONUNBUFFERED", "1"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
  };
  if (!flight_prefix.empty()) {
    env.emplace_back("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", flight_prefix);
    env.emplace_back("TORCH_FR_DUMP_TEMP_FILE", flight_prefix);
    // PyTorch before 2.9 reads TORCH_NCCL_DEBUG_INFO_TEMP_FILE instead of TORCH_FR_DUMP_TEMP_FILE,
    // so both are set.
    env.emplace_back("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", flight_prefix);
  }
  if (socket_ifname) {
    for (const std::string& name : ifname_variables) env.emplace_back(name, *socket_ifname);
  }
  return env;
}

Result<WorkerEnv> WorkerEnv::FromEnviron(const Getenv& getenv) {
  constexpr int kMaxRanks = 1 << 24;
  WorkerEnv env;
  if (const char* job_id = getenv(kJobIdVariable)) env.job_id = job_id;
  if (const char* rank_dir = getenv(kRankDirVariable)) env.rank_dir = rank_dir;
  if (const char* rank_socket = getenv(kRankSocketVariable)) env.rank_socket = rank_socket;
  if (getenv(kStatusFdVariable) != nullptr) {
    DSL_TRY_ASSIGN(env.status_fd, ReadInt(getenv, kStatusFdVariable, 3, 1 << 20));
  }
  if (getenv(kStoreFdVariable) != nullptr) {
    DSL_TRY_ASSIGN(env.store_fd, ReadInt(getenv, kStoreFdVariable, 3, 1 << 20));
  }
  if (getenv(kMemoryCheckpointVariable) != nullptr) {
    DSL_TRY_ASSIGN(env.memory_checkpoint,
                   ReadInt(getenv, kMemoryCheckpointVariable, 1, kMaxMemoryCheckpoint));
  }
  if (const char* fds = getenv(kMemoryFdsVariable)) {
    DSL_TRY_ASSIGN(env.memory_fds, ReadFds(kMemoryFdsVariable, fds));
  }
  const char* const attempt_name =
      getenv(kAttemptVariable) != nullptr ? kAttemptVariable : kAttemptAlias;
  if (getenv(attempt_name) != nullptr) {
    DSL_TRY_ASSIGN(const int attempt, ReadInt(getenv, attempt_name, 1, INT_MAX));
    env.attempt = static_cast<uint64_t>(attempt);
  }
  if (getenv("RANK") == nullptr && getenv("WORLD_SIZE") == nullptr) {
    env.master_addr = "127.0.0.1";
    return env;
  }
  DSL_TRY_ASSIGN(env.world_size, ReadInt(getenv, "WORLD_SIZE", 1, kMaxRanks));
  DSL_TRY_ASSIGN(env.rank, ReadInt(getenv, "RANK", 0, env.world_size - 1));
  DSL_TRY_ASSIGN(env.local_rank, ReadInt(getenv, "LOCAL_RANK", 0, env.world_size - 1));
  DSL_TRY_ASSIGN(env.local_world_size, ReadInt(getenv, "LOCAL_WORLD_SIZE", 1, env.world_size));
  // Not every launcher sets these variables, so they are optional.
  if (getenv(kNumNodesVariable) != nullptr) {
    DSL_TRY_ASSIGN(env.num_nodes, ReadInt(getenv, kNumNodesVariable, 1, env.world_size));
  }
  if (getenv(kNodeRankVariable) != nullptr) {
    DSL_TRY_ASSIGN(env.node_rank, ReadInt(getenv, kNodeRankVariable, 0, env.world_size - 1));
  }
  DSL_TRY_ASSIGN(env.master_port, ReadInt(getenv, "MASTER_PORT", 1, 65535));
  const char* master_addr = getenv("MASTER_ADDR");
  if (master_addr == nullptr || *master_addr == '\0')
    return BadVariable("MASTER_ADDR", "is missing");
  env.master_addr = master_addr;
  if (getenv(kRestartCountVariable) != nullptr) {
    DSL_TRY_ASSIGN(env.restart_count, ReadInt(getenv, kRestartCountVariable, 0, INT_MAX));
  }
  const char* agent_store = getenv(kAgentStoreVariable);
  env.agent_store = agent_store != nullptr && std::strcmp(agent_store, "True") == 0;
  return env;
}

bool IsPlaceVariable(std::string_view name) {
  if (name == kStatusFdVariable || name == kMemoryFdsVariable || name == kMemoryCheckpointVariable)
    return true;
  return std::ranges::any_of(WorkerEnv().Required(),
                             [&](const auto& variable) { return variable.first == name; });
}

}  // namespace dslaunch
