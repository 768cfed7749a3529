#include "agent/node/worker_specs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace dslaunch::worker_specs_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WorkerSpecsTest : public ::testing::Test {
 protected:
  WorkerSpecsTest() : folder_(*JobFolder::Create(dir_.path(), "job", "node2", {})) {
    job_.set_job_id("job");
    plan_.slots = 2;
    plan_.cores = 8;
    plan_.place.assignment.set_first_rank(2);
    plan_.place.assignment.set_world_size(4);
    plan_.place.assignment.set_node_rank(1);
    plan_.place.assignment.set_num_nodes(2);
    plan_.place.assignment.set_master_addr("127.0.0.1");
    plan_.place.assignment.set_master_port(4242);
  }

  // Returns the environment of the worker `local_rank`.
  Environment Of(int local_rank, const Environment& environment) {
    const pb::SpawnWorkers specs = SpecsOf(environment);
    const pb::WorkerSpec& spec = specs.workers(local_rank);
    Environment whole(spec.env().begin(), spec.env().end());
    whole.insert(whole.end(), specs.env().begin(), specs.env().end());
    return whole;
  }
  pb::WorkerSpec SpecOf(int local_rank, const Environment& environment) {
    return SpecsOf(environment).workers(local_rank);
  }
  pb::SpawnWorkers SpecsOf(const Environment& environment) {
    const auto specs = MakeWorkerSpecs(job_, plan_, program_, environment, folder_);
    EXPECT_TRUE(specs.ok()) << specs.error().message;
    return *specs;
  }

  ResolvedProgram program_ = {{"/bin/true"}, "/"};
  TempDir dir_;
  JobFolder folder_;
  pb::JobSpec job_;
  WorkerPlan plan_;
};

TEST_F(WorkerSpecsTest, SetsPlaceVariablesOfEachRank) {
  const Environment second = Of(1, {});
  const std::pair<const char*, const char*> expected[] = {{"RANK", "3"},
                                                          {"LOCAL_RANK", "1"},
                                                          {"WORLD_SIZE", "4"},
                                                          {"LOCAL_WORLD_SIZE", "2"},
                                                          {"GROUP_RANK", "1"},
                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                          {"MASTER_PORT", "4242"},
                                                          {"OMP_NUM_THREADS", "4"},
                                                          {"DSLAUNCH_JOB_ID", "job"},
                                                          {"GLOO_SOCKET_IFNAME", "lo"},
                                                          {"PYTHONUNBUFFERED", "1"}};
  for (const auto& [name, value] : expected)
    EXPECT_STREQ(FindVariable(second, name), value) << name;
  EXPECT_EQ(FindVariable(second, "DSLAUNCH_RANK_DIR"),
            folder_.AttemptFolder(plan_.place.attempt) + "/rank_3");
}

TEST_F(WorkerSpecsTest, SetsRankSocketOfItsOwnAgentOnly) {
  EXPECT_STREQ(
      FindVariable(Of(0, {"DSLAUNCH_RANK_SOCKET=/of/another/job"}), "DSLAUNCH_RANK_SOCKET"), "");
  plan_.place.rank_socket = "/job/ranks.sock";
  EXPECT_STREQ(FindVariable(Of(0, {}), "DSLAUNCH_RANK_SOCKET"), "/job/ranks.sock");
}

TEST_F(WorkerSpecsTest, RequestsMemoryOnlyForMemoryCheckpoints) {
  const Environment of_outer_job = {"DSLAUNCH_MEMORY_FDS=7,8", "DSLAUNCH_MEMORY_CHECKPOINT=5",
                                    "DSLAUNCH_STORE_FD=9"};
  const Environment without = Of(0, of_outer_job);
  for (const char* name :
       {"DSLAUNCH_MEMORY_FDS", "DSLAUNCH_MEMORY_CHECKPOINT", "DSLAUNCH_STORE_FD"})
    EXPECT_EQ(FindVariable(without, name), nullptr) << name;
  job_.mutable_ranks()->mutable_program()->set_memory_checkpoint(20);
  EXPECT_STREQ(FindVariable(Of(1, of_outer_job), "DSLAUNCH_MEMORY_CHECKPOINT"), "20");
  EXPECT_EQ(FindVariable(Of(1, of_outer_job), "DSLAUNCH_MEMORY_FDS"), nullptr);
}

TEST_F(WorkerSpecsTest, KeepsUsersVariablesExceptPlace) {
  const Environment env =
      Of(0, {"OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=eth7", "RANK=99", "HOME=/h"});
  EXPECT_STREQ(FindVariable(env, "OMP_NUM_THREADS"), "1");
  EXPECT_STREQ(FindVariable(env, "GLOO_SOCKET_IFNAME"), "eth7");
  EXPECT_STREQ(FindVariable(env, "RANK"), "2");
  EXPECT_STREQ(FindVariable(env, "HOME"), "/h");
}

TEST_F(WorkerSpecsTest, ShowsAllDevicesToRanksOrHidesThem) {
  plan_.devices = {"2", "3"};
  EXPECT_EQ(FindVariable(Of(0, {}), "CUDA_VISIBLE_DEVICES"), nullptr);
  job_.set_device(pb::DEVICE_CPU);
  EXPECT_STREQ(FindVariable(Of(0, {}), "CUDA_VISIBLE_DEVICES"), "");
  EXPECT_STREQ(FindVariable(Of(0, {}), "HIP_VISIBLE_DEVICES"), "-1");
  job_.set_device(pb::DEVICE_AUTO);
  plan_.place.device = pb::DEVICE_CUDA;
  EXPECT_STREQ(FindVariable(Of(0, {}), "CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_STREQ(FindVariable(Of(1, {}), "CUDA_VISIBLE_DEVICES"), "2,3");
  const Environment own = {"CUDA_VISIBLE_DEVICES=4,5"};
  EXPECT_STREQ(FindVariable(Of(1, own), "CUDA_VISIBLE_DEVICES"), "4,5");
  plan_.devices_given = true;
  EXPECT_STREQ(FindVariable(Of(1, own), "CUDA_VISIBLE_DEVICES"), "2,3") << "chosen for this job";
}

TEST_F(WorkerSpecsTest, VirtualLocalRankSeesOneDevice) {
  job_.mutable_ranks()->mutable_options()->set_virtual_local_rank(true);
  plan_.devices = {"4", "GPU-5"};
  program_ = {{"/usr/bin/python3", "-u", "t.py", "x"}, "/", "--local_rank", 3};
  for (const pb::Device device : {pb::DEVICE_CPU, pb::DEVICE_CUDA}) {
    plan_.place.device = device;
    const Environment second = Of(1, {"CUDA_VISIBLE_DEVICES=4,GPU-5"});
    EXPECT_STREQ(FindVariable(second, "LOCAL_RANK"), "0");
    EXPECT_STREQ(FindVariable(second, "LOCAL_WORLD_SIZE"), "2");
    EXPECT_STREQ(FindVariable(second, "RANK"), "3");
    EXPECT_STREQ(FindVariable(second, "CUDA_VISIBLE_DEVICES"), "GPU-5");
  }
  EXPECT_EQ(SpecOf(1, {}).argv(0), "--local_rank=0");
  EXPECT_EQ(SpecOf(1, {}).local_rank(), 1u) << "the supervisor's number stays";
  plan_.devices.pop_back();
  plan_.node_name = "node2";
  const auto specs = MakeWorkerSpecs(job_, plan_, program_, {}, folder_);
  ASSERT_FALSE(specs.ok());
  EXPECT_NE(specs.error().message.find("node2: --virtual_local_rank"), std::string::npos);
}

TEST_F(WorkerSpecsTest, SetsVariablesOfTheLastLevel) {
  plan_.place.device = pb::DEVICE_ROCM;
  plan_.devices = {"0", "1"};
  Environment amd = Of(0, {"ROCR_VISIBLE_DEVICES=6,7"});
  EXPECT_STREQ(FindVariable(amd, "ROCR_VISIBLE_DEVICES"), "6,7");
  EXPECT_STREQ(FindVariable(amd, "HIP_VISIBLE_DEVICES"), "0,1");
  EXPECT_STREQ(FindVariable(amd, "CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(FindVariable(amd, "GPU_DEVICE_ORDINAL"), nullptr);
  amd = Of(0, {"HIP_VISIBLE_DEVICES=3"});
  EXPECT_STREQ(FindVariable(amd, "HIP_VISIBLE_DEVICES"), "3") << "the user's";
  EXPECT_EQ(FindVariable(amd, "CUDA_VISIBLE_DEVICES"), nullptr);
  amd = Of(0, {"ROCR_VISIBLE_DEVICES=6,7", "CUDA_VISIBLE_DEVICES=6,7", "GPU_DEVICE_ORDINAL=6,7",
               "SLURM_STEP_GPUS=6,7"});
  EXPECT_STREQ(FindVariable(amd, "CUDA_VISIBLE_DEVICES"), "0,1") << "as Slurm's are";
  EXPECT_STREQ(FindVariable(amd, "GPU_DEVICE_ORDINAL"), "0,1");
  plan_.place.device = pb::DEVICE_NPU;
  const Environment ascend = Of(0, {});
  EXPECT_STREQ(FindVariable(ascend, "ASCEND_RT_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(FindVariable(ascend, "CUDA_VISIBLE_DEVICES"), nullptr);
  EXPECT_STREQ(FindVariable(ascend, "HCCL_SOCKET_IFNAME"), "lo");
}

TEST_F(WorkerSpecsTest, AddsLocalRankArgument) {
  program_ = {{"/usr/bin/python3", "-u", "t.py", "x"}, "/", "--local-rank", 3};
  const pb::SpawnWorkers specs = SpecsOf({});
  EXPECT_THAT(specs.argv(), ElementsAre("/usr/bin/python3", "-u", "t.py", "x"));
  EXPECT_EQ(specs.own_argv_at(), 3u);
  EXPECT_THAT(specs.workers(1).argv(), ElementsAre("--local-rank=1"));
}

// The environment is sent only once, so that 64 ranks with a large environment and many arguments
// fit into one message to the supervisor.
TEST_F(WorkerSpecsTest, SendsCommonEnvironmentOnce) {
  plan_.slots = 64;
  plan_.place.assignment.set_world_size(66);
  const std::string large(size_t{1} << 20, 'x');
  program_.argv.push_back(large);
  const Environment environment = {"RANK=99", "LARGE=" + large, "HOME=/h"};
  const pb::SpawnWorkers specs = SpecsOf(environment);
  EXPECT_LT(specs.ByteSizeLong(), size_t{3} << 20);
  EXPECT_THAT(specs.env(), ElementsAre("LARGE=" + large, "HOME=/h"));
  EXPECT_STREQ(FindVariable(Of(63, environment), "RANK"), "65");
  program_.argv.assign(20, large);
  const auto too_much = MakeWorkerSpecs(job_, plan_, program_, environment, folder_);
  ASSERT_FALSE(too_much.ok());
  EXPECT_THAT(too_much.error().message, HasSubstr("environment and arguments are 21 MiB"));
}

TEST_F(WorkerSpecsTest, TakesRoleRankFromAssignment) {
  EXPECT_STREQ(FindVariable(Of(1, {}), "ROLE_RANK"), FindVariable(Of(1, {}), "RANK"));
  plan_.place.assignment.set_first_role_rank(4);
  plan_.place.assignment.set_role_world_size(7);
  EXPECT_STREQ(FindVariable(Of(1, {}), "ROLE_RANK"), "5");
  EXPECT_STREQ(FindVariable(Of(1, {}), "ROLE_WORLD_SIZE"), "7");
}

TEST_F(WorkerSpecsTest, SetsChosenRoleRunIdAndAddress) {
  EXPECT_STREQ(FindVariable(Of(0, {}), "ROLE_NAME"), "default");
  EXPECT_STREQ(FindVariable(Of(0, {}), "TORCHELASTIC_RUN_ID"), "job");
  job_.mutable_ranks()->mutable_options()->set_run_id("77");
  EXPECT_STREQ(FindVariable(Of(0, {}), "TORCHELASTIC_RUN_ID"), "77");
  job_.mutable_ranks()->mutable_options()->set_role("trainer");
  job_.mutable_ranks()->mutable_options()->set_master_addr("head.example");
  EXPECT_STREQ(FindVariable(Of(0, {}), "ROLE_NAME"), "trainer");
  EXPECT_STREQ(FindVariable(Of(0, {}), "MASTER_ADDR"), "head.example");
}

TEST_F(WorkerSpecsTest, BoundRankHasOneThreadPerCore) {
  plan_.bindings.resize(2);
  plan_.bindings[1] = {{4, 5, 6}, {1}, true, 3};
  const pb::WorkerSpec spec = SpecOf(1, {"OMP_NUM_THREADS=9"});
  EXPECT_EQ(std::vector<uint32_t>(spec.cpus().begin(), spec.cpus().end()),
            (std::vector<uint32_t>{4, 5, 6}));
  EXPECT_EQ(spec.memory_nodes_size(), 1);
  EXPECT_TRUE(spec.memory_preferred());
  EXPECT_STREQ(FindVariable(Of(1, {"OMP_NUM_THREADS=9"}), "OMP_NUM_THREADS"), "3");
  plan_.bindings[0].cpus = {0};  // bound to a CPU without a number of threads, as by --numa_binding
  EXPECT_STREQ(FindVariable(Of(0, {"OMP_NUM_THREADS=9"}), "OMP_NUM_THREADS"), "9");
}

}  // namespace
}  // namespace dslaunch::worker_specs_test
