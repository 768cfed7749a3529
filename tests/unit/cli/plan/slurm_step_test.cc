#include "cli/plan/slurm_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace dslaunch::slurm_step_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Map = std::map<std::string, std::string>;

const Map kStep = {{"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "3"},
                   {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_STEP_NODELIST", "n[2-4]"},
                   {"SLURM_NODEID", "1"},         {"SLURM_PROCID", "1"}};

Result<std::optional<SlurmStep>> Read(const Map& variables) {
  return ReadSlurmStep([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Map With(const std::string& name, const std::string& value) {
  Map variables = kStep;
  variables[name] = value;
  return variables;
}

TEST(SlurmStepTest, ReadsNodeOfThisProcess) {
  const auto step = Read(kStep);
  ASSERT_TRUE(step.ok() && *step);
  EXPECT_EQ((*step)->name, "12.3");
  EXPECT_THAT((*step)->nodes, ElementsAre("n2", "n3", "n4"));
  LaunchOptions options;
  ASSERT_TRUE(IsPlacedBySlurm(options));
  ASSERT_TRUE(PlaceInStep(**step, options).ok());
  EXPECT_EQ(options.num_nodes, 3);
  ASSERT_TRUE(options.per_node);
  EXPECT_EQ(options.per_node->node_rank, 1);
  EXPECT_EQ(options.per_node->host, "n2");
  EXPECT_EQ(options.per_node->id, "slurm-12.3");
  LaunchOptions others;
  ASSERT_TRUE(PlaceInStep(**Read(With("SLURM_NODEID", "0")), others).ok());
  EXPECT_EQ(others.per_node->port, options.per_node->port) << "all nodes find the same";
  EXPECT_GE(options.per_node->port, 20'000);
  EXPECT_LT(options.per_node->port, 32'000);
}

TEST(SlurmStepTest, ElasticJobHasAtMostNodesOfStep) {
  LaunchOptions options;
  options.min_nodes = 2;
  ASSERT_TRUE(PlaceInStep(**Read(kStep), options).ok());
  EXPECT_EQ(options.max_nodes, 3);
  EXPECT_EQ(options.num_nodes, std::nullopt);
}

TEST(SlurmStepTest, ReturnsNoStepForOneTask) {
  EXPECT_EQ(*Read({}), std::nullopt);
  EXPECT_EQ(*Read(With("SLURM_STEP_NUM_TASKS", "1")), std::nullopt);
  Map batch = kStep;  // variables of a batch script that was started from a step
  batch.erase("SLURM_PROCID");
  EXPECT_EQ(*Read(batch), std::nullopt);
}

TEST(SlurmStepTest, OptionsThatNameNodesOverrideStep) {
  for (const auto& say : std::initializer_list<void (*)(LaunchOptions&)>{
           [](LaunchOptions& o) { o.launcher = Launcher::kLocal; },
           [](LaunchOptions& o) { o.hostfile = "hosts"; },
           [](LaunchOptions& o) { o.hosts.resize(1); },
           [](LaunchOptions& o) { o.per_node = PerNode(); },
           [](LaunchOptions& o) { o.exec_command = {"x"}; }}) {
    LaunchOptions options;
    say(options);
    EXPECT_FALSE(IsPlacedBySlurm(options));
  }
}

TEST(SlurmStepTest, RejectsOptionsThatReachNodes) {
  for (const auto& [name, say] :
       std::initializer_list<std::pair<const char*, void (*)(LaunchOptions&)>>{
           {"--ssh_port", [](LaunchOptions& o) { o.ssh_port = 22; }},
           {"--ssh_command", [](LaunchOptions& o) { o.ssh_command = {"ssh"}; }},
           {"--agent_dir", [](LaunchOptions& o) { o.agent_dir = "/tmp"; }},
           {"--fanout", [](LaunchOptions& o) { o.fanout = 2; }}}) {
    LaunchOptions options;
    say(options);
    const Result<void> placed = PlaceInStep(**Read(kStep), options);
    ASSERT_FALSE(placed.ok()) << name;
    EXPECT_EQ(placed.error().code, ExitCode::kUsage);
    EXPECT_THAT(placed.error().message, HasSubstr(name));
  }
}

TEST(SlurmStepTest, RejectsStepsThatDoNotFit) {
  LaunchOptions options;
  const Result<void> many = PlaceInStep(**Read(With("SLURM_STEP_NUM_TASKS", "6")), options);
  ASSERT_FALSE(many.ok());
  EXPECT_THAT(many.error().message, HasSubstr("6 tasks on 3 nodes"));
  options.num_nodes = 2;
  EXPECT_THAT(PlaceInStep(**Read(kStep), options).error().message,
              HasSubstr("--num_nodes 2, but srun has 3 nodes"));
  for (const auto& [name, value] : Map{{"SLURM_NODEID", "3"},
                                       {"SLURM_STEP_NODELIST", "n[1-"},
                                       {"SLURM_STEP_NUM_TASKS", "x"},
                                       {"SLURM_STEP_ID", ""}}) {
    const auto step = Read(With(name, value));
    ASSERT_FALSE(step.ok()) << name;
    EXPECT_EQ(step.error().code, ExitCode::kBadInput);
    EXPECT_THAT(step.error().message, HasSubstr(name));
  }
}

}  // namespace
}  // namespace dslaunch::slurm_step_test
