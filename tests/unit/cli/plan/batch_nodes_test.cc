#include "cli/plan/batch_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace dslaunch::batch_nodes_test {
namespace {

using ::testing::HasSubstr;

using Map = std::map<std::string, std::string>;

std::optional<BatchNodes> Read(const Map& variables, const Map& files) {
  return ReadBatchNodes(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      [&](const std::string& path) -> Result<std::string> {
        const auto found = files.find(path);
        if (found == files.end()) return Error{ExitCode::kIo, path + ": No such file"};
        return found->second;
      });
}

// Returns the nodes with their slots, as in "n1 2, n2 1", or the reason why the nodes are unusable.
std::string Text(const BatchNodes& nodes) {
  std::string text;
  for (const Host& host : nodes.hosts)
    text += (text.empty() ? "" : ", ") + host.name + " " + std::to_string(host.slots);
  return nodes.unusable.empty() ? text : nodes.unusable;
}

TEST(BatchNodesTest, ReadsListsThatMpirunReads) {
  const Map files = {{"/pbs", "n1\nn1\n\nn2\nn1\n"},
                     {"/lsf", "n1\nn2\nn2\n"},
                     {"/sge", "n1.site 2 all.q@n1.site UNDEFINED\nn2.site 1 all.q@n2 0,0:0,1\n"}};
  const struct {
    const char* variable;
    const char* value;
    const char* nodes;
  } cases[] = {{"PBS_NODEFILE", "/pbs", "n1 3, n2 1"},
               {"LSB_DJOB_HOSTFILE", "/lsf", "n1 1, n2 2"},
               {"LSB_MCPU_HOSTS", "n1 4 n2 8 ", "n1 4, n2 8"},
               {"PE_HOSTFILE", "/sge", "n1.site 2, n2.site 1"}};
  for (const auto& [variable, value, nodes] : cases) {
    const auto read = Read({{variable, value}}, files);
    ASSERT_TRUE(read) << variable;
    EXPECT_EQ(read->variable, variable);
    EXPECT_EQ(Text(*read), nodes);
  }
  EXPECT_FALSE(Read({}, files));
}

TEST(BatchNodesTest, IgnoresListInProcessOfMpirunOrRank) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "DSLAUNCH_JOB_ID"})
    EXPECT_FALSE(Read({{"PBS_NODEFILE", "/pbs"}, {variable, "2"}}, {{"/pbs", "n1\n"}}));
}

TEST(BatchNodesTest, ReportsUnusableList) {
  const Map files = {{"/empty", "\n"}, {"/option", "-x\n"}, {"/words", "n1\n"}};
  for (const auto& [variable, value, why] :
       {std::tuple("PBS_NODEFILE", "/none", "/none: No such file"),
        std::tuple("PBS_NODEFILE", "/empty", "/empty: it names no node"),
        std::tuple("PBS_NODEFILE", "/option", "/option:1: '-x'"),
        std::tuple("PE_HOSTFILE", "/words", "/words:1: "),
        std::tuple("LSB_MCPU_HOSTS", "n1 0", "LSB_MCPU_HOSTS:1: '0'")}) {
    const auto read = Read({{variable, value}}, files);
    ASSERT_TRUE(read) << value;
    EXPECT_THAT(Text(*read), HasSubstr(why));
    EXPECT_TRUE(read->hosts.empty());
  }
}

}  // namespace
}  // namespace dslaunch::batch_nodes_test
