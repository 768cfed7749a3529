#include "cli/plan/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::job_spec_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MakeJobSpec, FiltersLinesOfShownRanks) {
  LaunchOptions options;
  options.shown_ranks = {true, {}};
  options.local_ranks_shown = std::vector{1, 3};
  options.stdout_filters = {"loss"};
  options.role = "trainer";
  const Result<pb::JobSpec> job = MakeJobSpec(options, {}, {.tag_template = "[$rank]"});
  ASSERT_TRUE(job.ok()) << job.error().message;
  const pb::FilteredLogs& filtered = job->ranks().filtered();
  EXPECT_THAT(filtered.ranks().local_ranks(), ElementsAre(1, 3));
  EXPECT_THAT(filtered.stdout_texts(), ElementsAre("loss"));
  EXPECT_THAT(filtered.stderr_texts(), IsEmpty());
  EXPECT_EQ(filtered.tag_template(), "[$rank]");
  EXPECT_EQ(filtered.role(), "trainer");
}

TEST(MakeJobSpec, ResolvesLogDirAndSavesPidOnRequest) {
  LaunchOptions options;
  EXPECT_EQ(MakeJobSpec(options, {}, {.cwd = "/home/alice"})->ranks().log_dir(), "");
  options.log_dir = "logs";
  options.log_max_mb = 2;
  const pb::JobSpec job = *MakeJobSpec(options, {}, {.cwd = "/home/alice", .pid = 7});
  EXPECT_EQ(job.ranks().log_dir(), "/home/alice/logs");
  EXPECT_EQ(job.ranks().save_pid(), 0u);
  EXPECT_EQ(job.log_max_bytes(), uint64_t{2} << 20);
  options.save_pid = true;
  EXPECT_EQ(MakeJobSpec(options, {}, {.pid = 7})->ranks().save_pid(), 7u);
}

TEST(MakeJobSpec, OnlyNodesReachedOverSshAreDifferentMachines) {
  LaunchPlan plan;
  plan.launcher = Launcher::kLocal;
  EXPECT_TRUE(MakeJobSpec({}, plan, {})->local());
  EXPECT_TRUE(MakeJobSpec({}, plan, {})->may_share_machine());
  plan.launcher = Launcher::kSsh;
  EXPECT_FALSE(MakeJobSpec({}, plan, {})->local());
  EXPECT_FALSE(MakeJobSpec({}, plan, {})->may_share_machine());
  plan.launcher = Launcher::kPdsh;
  EXPECT_FALSE(MakeJobSpec({}, plan, {})->local());
  EXPECT_TRUE(MakeJobSpec({}, plan, {})->may_share_machine());
}

TEST(PrepareRequestFor, AddsIndexDevicesAndVariablesOfNode) {
  pb::PrepareRequest common;
  common.mutable_job()->set_job_id("job");
  common.mutable_job()->mutable_ranks()->mutable_program()->add_argv("train.py");
  LaunchPlan plan;
  plan.nodes.resize(2);
  plan.nodes[1].devices = {2, 5};
  plan.nodes[1].env = {{"A", "b"}};
  const pb::PrepareRequest request = PrepareRequestFor(common, plan, 1);
  EXPECT_EQ(request.node_index(), 1u);
  EXPECT_EQ(request.job().job_id(), "job");
  EXPECT_THAT(request.devices(), ElementsAre(2, 5));
  const pb::Program& program = request.job().ranks().program();
  EXPECT_EQ(program.argv(0), "train.py");
  ASSERT_EQ(program.env_size(), 1);
  EXPECT_EQ(program.env(0).name(), "A");
}

}  // namespace
}  // namespace dslaunch::job_spec_test
