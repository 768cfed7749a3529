#include "cli/plan/slurm_allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

namespace dslaunch::slurm_allocation_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

Environment FourNodes() {
  return {{"SLURM_JOB_ID", "41"},
          {"SLURM_JOB_NODELIST", "n[1-3],big"},
          {"SLURM_JOB_NUM_NODES", "4"},
          {"SLURM_NTASKS", "14"},
          {"SLURM_TASKS_PER_NODE", "2(x3),8"},
          {"SLURM_JOB_CPUS_PER_NODE", "16(x3),64"}};
}

auto Read(const Environment& environment) {
  return ReadSlurmAllocation([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(SlurmAllocationTest, ReadsNodesWithTasksAndCores) {
  const auto allocation = Read(FourNodes());
  ASSERT_TRUE(allocation.ok() && *allocation);
  EXPECT_EQ((*allocation)->job_id, "41");
  ASSERT_EQ((*allocation)->nodes.size(), 4u);
  EXPECT_EQ((*allocation)->nodes[2].name, "n3");
  EXPECT_EQ((*allocation)->nodes[2].tasks, 2);
  EXPECT_EQ((*allocation)->nodes[3].name, "big");
  EXPECT_EQ((*allocation)->nodes[3].tasks, 8);
  EXPECT_EQ((*allocation)->nodes[3].cores, 64);
  EXPECT_EQ((*allocation)->nodes[0].gpus, 0);
  EXPECT_EQ((*allocation)->nodes[0].component, -1);
  EXPECT_FALSE((*allocation)->in_step_of_many);
}

TEST(SlurmAllocationTest, CountsGpusWithAndWithoutType) {
  for (const auto& [text, gpus] : {std::pair("8", 8), {"a100:4", 4}, {"a100:2,v100:1", 3}}) {
    Environment environment = FourNodes();
    environment["SLURM_GPUS_PER_NODE"] = text;
    EXPECT_EQ((*Read(environment))->nodes[3].gpus, gpus) << text;
    environment["SLURM_GPUS_ON_NODE"] = "5";
    EXPECT_EQ((*Read(environment))->nodes[3].gpus, 5) << text;
  }
}

TEST(SlurmAllocationTest, IsEmptyWithoutJobIdOrNodes) {
  for (const char* missing : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST"}) {
    Environment environment = FourNodes();
    environment.erase(missing);
    EXPECT_FALSE(*Read(environment)) << missing;
    environment[missing] = "";
    EXPECT_FALSE(*Read(environment)) << missing;
  }
}

TEST(SlurmAllocationTest, DetectsStepOfSeveralTasks) {
  Environment environment = FourNodes();
  environment["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_FALSE((*Read(environment))->in_step_of_many);
  environment["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_TRUE((*Read(environment))->in_step_of_many);
}

TEST(SlurmAllocationTest, IgnoresTasksThatDoNotFitNodes) {
  for (const char* tasks : {"1", "2(x4),8", "2(x", "(x4)", "2(x99999999999)", "-1(x4)", ",", "x"}) {
    Environment environment = FourNodes();
    environment["SLURM_TASKS_PER_NODE"] = tasks;
    const auto allocation = Read(environment);
    ASSERT_TRUE(allocation.ok()) << tasks;
    EXPECT_EQ((*allocation)->nodes[3].tasks, 1) << tasks;
  }
}

TEST(SlurmAllocationTest, ErrorsNameVariable) {
  const struct {
    const char* variable;
    const char* value;
    const char* message;
  } cases[] = {
      {"SLURM_JOB_ID", "4; rm", "SLURM_JOB_ID=4; rm is not a job id"},
      {"SLURM_JOB_NODELIST", "n[1-", "SLURM_JOB_NODELIST: the brackets in 'n[1-' do not match"},
      {"SLURM_JOB_NUM_NODES", "5", "SLURM_JOB_NODELIST has 4 nodes, but SLURM_JOB_NUM_NODES is 5"},
      {"SLURM_GPUS_ON_NODE", "many", "SLURM_GPUS_ON_NODE=many is not a number of GPUs"},
  };
  for (const auto& [variable, value, message] : cases) {
    Environment environment = FourNodes();
    environment[variable] = value;
    const auto allocation = Read(environment);
    ASSERT_FALSE(allocation.ok()) << variable;
    EXPECT_THAT(allocation.error().message, HasSubstr(message));
  }
}

// Returns the variables that salloc sets. A batch script would also have SLURM_JOB_NODELIST of the
// first component.
Environment OfTwoComponents() {
  return {{"SLURM_JOB_ID", "6"},
          {"SLURM_HET_SIZE", "2"},
          {"SLURM_JOB_NODELIST_HET_GROUP_0", "n1"},
          {"SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"},
          {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "4"},
          {"SLURM_GPUS_PER_NODE_HET_GROUP_0", "2"},
          {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]"},
          {"SLURM_NTASKS_HET_GROUP_1", "6"},
          {"SLURM_TASKS_PER_NODE_HET_GROUP_1", "3(x2)"}};
}

TEST(SlurmAllocationTest, CountsRequestedTasksOnly) {
  Environment environment = FourNodes();
  environment.erase("SLURM_NTASKS");
  EXPECT_EQ((*Read(environment))->nodes[3].tasks, 1);
}

TEST(SlurmAllocationTest, ReadsAllComponentsOfHeterogeneousJob) {
  Environment environment = OfTwoComponents();
  for (const bool is_batch : {false, true}) {
    if (is_batch) environment["SLURM_JOB_NODELIST"] = "n1";
    const auto allocation = Read(environment);
    ASSERT_TRUE(allocation.ok() && *allocation);
    ASSERT_EQ((*allocation)->nodes.size(), 3u);
    EXPECT_EQ((*allocation)->nodes[0].gpus, 2);
    EXPECT_EQ((*allocation)->nodes[0].tasks, 1) << "no tasks were asked for";
    EXPECT_EQ((*allocation)->nodes[0].component, 0);
    EXPECT_EQ((*allocation)->nodes[2].name, "n3");
    EXPECT_EQ((*allocation)->nodes[2].tasks, 3);
    EXPECT_EQ((*allocation)->nodes[2].component, 1);
  }
}

TEST(SlurmAllocationTest, NamesVariableOfBadComponent) {
  for (const auto& [variable, value, message] :
       {std::tuple("SLURM_HET_SIZE", "3", "SLURM_NODELIST_HET_GROUP_2 is not set"),
        std::tuple("SLURM_HET_SIZE", "x", "SLURM_HET_SIZE=x is not a valid number"),
        std::tuple("SLURM_JOB_NODELIST_HET_GROUP_1", "n[", "SLURM_JOB_NODELIST_HET_GROUP_1: "),
        std::tuple("SLURM_GPUS_PER_NODE_HET_GROUP_0", "?", "SLURM_GPUS_PER_NODE_HET_GROUP_0=?")}) {
    Environment environment = OfTwoComponents();
    environment[variable] = value;
    const auto allocation = Read(environment);
    ASSERT_FALSE(allocation.ok()) << variable;
    EXPECT_THAT(allocation.error().message, HasSubstr(message));
  }
}

TEST(SlurmAllocationTest, ReadsGresOfEachNodeFromScontrol) {
  SlurmAllocation allocation = **Read(FourNodes());
  ReadGres(
      "JobId=41 JobName=x\n   NodeList=n[1-3],big NumNodes=4\n   JOB_GRES=gpu:14\n"
      "     Nodes=n[1-2] CPU_IDs=0-15 Mem=0 GRES=gpu:a100:4(IDX:0-1,4-5),nic:1(IDX:0)\n"
      "     Nodes=n3,other CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)\n"
      "     Nodes=big CPU_IDs=0 Mem=0 GRES=\n   TresPerJob=gres:gpu:14\n",
      allocation);
  EXPECT_EQ(allocation.gpus_unknown, "");
  EXPECT_EQ(allocation.nodes[0].gres, "gpu:a100:4,nic:1");
  EXPECT_EQ(allocation.nodes[1].gpus, 4);
  EXPECT_EQ(allocation.nodes[2].gpus, 2);
  EXPECT_EQ(allocation.nodes[2].gres, "gpu:2");
  EXPECT_EQ(allocation.nodes[3].gpus, 0);
  EXPECT_EQ(allocation.nodes[3].gres, "");
}

TEST(SlurmAllocationTest, SkipsGresThatSrunWouldNotTake) {
  SlurmAllocation allocation = **Read(FourNodes());
  ReadGres("Nodes=n1 GRES=(null),gpu,a b,--x=$(y),gpu:v:x Nodes=n[ GRES=gpu:9 GRES=gpu:(",
           allocation);
  EXPECT_EQ(allocation.nodes[0].gpus, 1);
  EXPECT_EQ(allocation.nodes[0].gres, "gpu,a");
}

TEST(SlurmAllocationTest, SallocGetsNodesOptionsAndArguments) {
  EXPECT_THAT(SallocCommand({"-t", "10"}, 4, {"/bin/dslaunch", "--launcher", "slurm", "a b"}),
              ElementsAre("salloc", "--quiet", "--nodes=4", "-t", "10", "/bin/dslaunch",
                          "--launcher", "slurm", "a b"));
  EXPECT_THAT(SallocCommand({"-N2"}, std::nullopt, {"/bin/dslaunch"}),
              ElementsAre("salloc", "--quiet", "-N2", "/bin/dslaunch"));
}

}  // namespace
}  // namespace dslaunch::slurm_allocation_test
