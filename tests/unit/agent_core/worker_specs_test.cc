#include "agent/worker_specs.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace dslaunch {
namespace {

class WorkerSpecsTest : public ::testing::Test {
 protected:
  WorkerSpecsTest() : folder_(*JobFolder::Create(dir_.path(), "job", "node2", {})) {
    plan_.job_id = "job";
    plan_.slots = 2;
    plan_.cores = 8;
    plan_.assignment.set_first_rank(2);
    plan_.assignment.set_world_size(4);
    plan_.assignment.set_node_rank(1);
    plan_.assignment.set_num_nodes(2);
    plan_.assignment.set_master_addr("127.0.0.1");
    plan_.assignment.set_master_port(4242);
  }

  // The environment of one worker.
  Environment Of(int local_rank, const Environment& environment) {
    const auto specs = MakeWorkerSpecs(plan_, {{"/bin/true"}, "/"}, environment, folder_);
    EXPECT_TRUE(specs.ok());
    const auto& env = specs->workers(local_rank).env();
    return Environment(env.begin(), env.end());
  }

  TempDir dir_;
  JobFolder folder_;
  WorkerPlan plan_;
};

TEST_F(WorkerSpecsTest, PlacesEachRank) {
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
}

TEST_F(WorkerSpecsTest, TheUsersChoicesStayButThePlaceIsOurs) {
  const Environment env =
      Of(0, {"OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=eth7", "RANK=99", "HOME=/h"});
  EXPECT_STREQ(FindVariable(env, "OMP_NUM_THREADS"), "1");
  EXPECT_STREQ(FindVariable(env, "GLOO_SOCKET_IFNAME"), "eth7");
  EXPECT_STREQ(FindVariable(env, "RANK"), "2");
  EXPECT_STREQ(FindVariable(env, "HOME"), "/h");
}

TEST_F(WorkerSpecsTest, GpusAreShownToAllOrHidden) {
  EXPECT_EQ(FindVariable(Of(0, {}), "CUDA_VISIBLE_DEVICES"), nullptr);
  plan_.device = pb::DEVICE_CPU;
  EXPECT_STREQ(FindVariable(Of(0, {}), "CUDA_VISIBLE_DEVICES"), "");
  plan_.device = pb::DEVICE_AUTO;
  plan_.use_cuda = true;
  EXPECT_STREQ(FindVariable(Of(1, {}), "CUDA_VISIBLE_DEVICES"), "0,1");
  plan_.first_device = 2;
  EXPECT_STREQ(FindVariable(Of(0, {}), "CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_STREQ(FindVariable(Of(1, {"CUDA_VISIBLE_DEVICES=4,5"}), "CUDA_VISIBLE_DEVICES"), "4,5");
}

}  // namespace
}  // namespace dslaunch
