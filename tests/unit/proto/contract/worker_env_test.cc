#include "proto/contract/worker_env.h"

#include <gtest/gtest.h>

#include <map>

namespace dslaunch::worker_env_test {
namespace {

using Map = std::map<std::string, std::string>;

WorkerEnv::Getenv Lookup(const Map& map) {
  return [&map](const char* name) -> const char* {
    const auto found = map.find(name);
    return found == map.end() ? nullptr : found->second.c_str();
  };
}

WorkerEnv Example() {
  WorkerEnv env;
  env.rank = 3;
  env.local_rank = 1;
  env.world_size = 4;
  env.local_world_size = 2;
  env.node_rank = 1;
  env.num_nodes = 2;
  env.master_addr = "10.0.0.1";
  env.master_port = 29500;
  env.job_id = "job";
  env.status_fd = 5;
  env.rank_dir = "/jobs/rank_3";
  env.rank_socket = "/jobs/ranks.sock";
  env.attempt = 3;
  return env;
}

TEST(WorkerEnvTest, ReadsBackWrittenVariables) {
  const auto list = Example().Required();
  const Map map(list.begin(), list.end());
  const Result<WorkerEnv> back = WorkerEnv::FromEnviron(Lookup(map));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->rank, 3);
  EXPECT_EQ(back->local_rank, 1);
  EXPECT_EQ(back->world_size, 4);
  EXPECT_EQ(back->local_world_size, 2);
  EXPECT_EQ(back->node_rank, 1);
  EXPECT_EQ(back->num_nodes, 2);
  EXPECT_EQ(back->master_addr, "10.0.0.1");
  EXPECT_EQ(back->master_port, 29500);
  EXPECT_EQ(back->status_fd, 5);
  EXPECT_EQ(back->attempt, Example().attempt);
  EXPECT_EQ(back->rank_dir, "/jobs/rank_3");
  EXPECT_EQ(back->rank_socket, "/jobs/ranks.sock");
}

TEST(WorkerEnvTest, ReadsAttemptUnderItsFormerNameToo) {
  const auto list = Example().Required();
  Map map(list.begin(), list.end());
  EXPECT_EQ(map.at("DSLAUNCH_ATTEMPT"), "3");
  EXPECT_EQ(map.at("DSLAUNCH_EPOCH"), "3");
  map.erase("DSLAUNCH_ATTEMPT");
  const Result<WorkerEnv> env = WorkerEnv::FromEnviron(Lookup(map));
  ASSERT_TRUE(env.ok()) << env.error().message;
  EXPECT_EQ(env->attempt, 3u);
}

TEST(WorkerEnvTest, SetsVariablesOfTorchrunAndDeepSpeed) {
  const auto list = Example().Required();
  const Map map(list.begin(), list.end());
  EXPECT_EQ(map.at("GROUP_RANK"), "1");
  EXPECT_EQ(map.at("GROUP_WORLD_SIZE"), "2");
  EXPECT_EQ(map.at("LOCAL_SIZE"), "2");
  EXPECT_EQ(map.at("CROSS_RANK"), "1");
  EXPECT_EQ(map.at("CROSS_SIZE"), "2");
  EXPECT_EQ(map.at("TORCHELASTIC_USE_AGENT_STORE"), "False");
  EXPECT_EQ(map.at("TORCHELASTIC_RUN_ID"), "job");
}

TEST(WorkerEnvTest, SetsOpenMpiVariablesOnRequest) {
  WorkerEnv env = Example();
  auto list = env.Required();
  EXPECT_EQ(Map(list.begin(), list.end()).count("OMPI_COMM_WORLD_RANK"), 0u);
  env.mpi_env = true;
  list = env.Required();
  const Map map(list.begin(), list.end());
  EXPECT_EQ(map.at("OMPI_COMM_WORLD_RANK"), "3");
  EXPECT_EQ(map.at("OMPI_COMM_WORLD_SIZE"), "4");
  EXPECT_EQ(map.at("OMPI_COMM_WORLD_LOCAL_RANK"), "1");
  EXPECT_EQ(map.at("OMPI_COMM_WORLD_LOCAL_SIZE"), "2");
  EXPECT_EQ(map.at("OMPI_COMM_WORLD_NODE_RANK"), "1");
}

TEST(WorkerEnvTest, RequiredVariablesArePlaceVariables) {
  for (const auto& [name, value] : Example().Required()) EXPECT_TRUE(IsPlaceVariable(name)) << name;
  for (const char* name :
       {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED", "RAN", ""})
    EXPECT_FALSE(IsPlaceVariable(name)) << name;
}

TEST(WorkerEnvTest, RequiresThreadsThatFollowFromCores) {
  WorkerEnv env = Example();
  env.role = "trainer";
  env.omp_num_threads = 3;
  const auto names = [&] {
    const auto list = env.Required();
    return Map(list.begin(), list.end());
  };
  EXPECT_EQ(names().count("OMP_NUM_THREADS"), 0u);
  EXPECT_EQ(names().at("ROLE_NAME"), "trainer");
  env.omp_required = true;
  EXPECT_EQ(names().at("OMP_NUM_THREADS"), "3");
}

TEST(WorkerEnvTest, WithoutVariablesTheWorldHasOneRank) {
  const Result<WorkerEnv> env = WorkerEnv::FromEnviron(Lookup({}));
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->world_size, 1);
  EXPECT_EQ(env->rank, 0);
}

TEST(WorkerEnvTest, ReadsAgentStoreOfTorchrun) {
  const auto list = Example().Required();
  Map map(list.begin(), list.end());
  EXPECT_FALSE(WorkerEnv::FromEnviron(Lookup(map))->agent_store);
  map["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  map["TORCHELASTIC_RESTART_COUNT"] = "3";
  const Result<WorkerEnv> env = WorkerEnv::FromEnviron(Lookup(map));
  EXPECT_TRUE(env->agent_store);
  EXPECT_EQ(env->restart_count, 3) << "the store outlives a start of the ranks";
}

TEST(WorkerEnvTest, ReadsMemoryCheckpoints) {
  EXPECT_FALSE(WorkerEnv::FromEnviron(Lookup({}))->memory_fds);
  const Result<WorkerEnv> env = WorkerEnv::FromEnviron(
      Lookup({{"DSLAUNCH_MEMORY_FDS", "7,12"}, {"DSLAUNCH_MEMORY_CHECKPOINT", "20"}}));
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->memory_fds, std::pair(7, 12));
  EXPECT_EQ(env->memory_checkpoint, 20);
}

TEST(WorkerEnvTest, NodesShareMachineWithLoopbackAddress) {
  WorkerEnv env = Example();
  for (const auto& [address, shared] :
       {std::pair("127.0.0.1", true), {"127.0.1.1", true}, {"::1", true}, {"10.0.0.1", false}}) {
    env.master_addr = address;
    EXPECT_EQ(env.nodes_share_machine(), shared) << address;
  }
}

TEST(WorkerEnvTest, NamesTheInvalidVariable) {
  const auto list = Example().Required();
  const Map good(list.begin(), list.end());
  const std::pair<const char*, const char*> bad[] = {{"RANK", "4"},
                                                     {"RANK", "x"},
                                                     {"RANK", ""},
                                                     {"WORLD_SIZE", "0"},
                                                     {"LOCAL_RANK", "-1"},
                                                     {"RANK", "1 "},
                                                     {"GROUP_RANK", "4"},
                                                     {"GROUP_WORLD_SIZE", "0"},
                                                     {"MASTER_PORT", "65536"},
                                                     {"MASTER_ADDR", ""},
                                                     {"LOCAL_WORLD_SIZE", "99999999999"},
                                                     {"DSLAUNCH_ATTEMPT", "0"},
                                                     {"DSLAUNCH_MEMORY_CHECKPOINT", "0"},
                                                     {"DSLAUNCH_MEMORY_FDS", "7"},
                                                     {"DSLAUNCH_MEMORY_FDS", "7,1"},
                                                     {"DSLAUNCH_MEMORY_FDS", "7,8,"},
                                                     {"DSLAUNCH_STATUS_FD", "1"}};
  for (const auto& [name, value] : bad) {
    Map map = good;
    map[name] = value;
    const Result<WorkerEnv> env = WorkerEnv::FromEnviron(Lookup(map));
    ASSERT_FALSE(env.ok()) << name << "=" << value;
    EXPECT_EQ(env.error().code, ExitCode::kUsage);
    EXPECT_NE(env.error().message.find(name), std::string::npos) << env.error().message;
  }
  for (const char* name : {"RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    Map map = good;
    map.erase(name);
    const Result<WorkerEnv> env = WorkerEnv::FromEnviron(Lookup(map));
    ASSERT_FALSE(env.ok()) << name;
    EXPECT_NE(env.error().message.find(name), std::string::npos) << env.error().message;
  }
}

}  // namespace
}  // namespace dslaunch::worker_env_test
