#include "base/text/suggest.h"

#include <gtest/gtest.h>

namespace dslaunch::suggest_test {
namespace {

TEST(Nearest, FindsTyposAndNothingElse) {
  const std::vector<std::string> words = {"num_nodes", "num_gpus", "hostfile", "tee"};
  EXPECT_EQ(Nearest("num_node", words), "num_nodes");
  EXPECT_EQ(Nearest("nmu_gpus", words), "num_gpus");  // two adjacent letters are swapped
  EXPECT_EQ(Nearest("hotsfile", words), "hostfile");
  EXPECT_EQ(Nearest("te", words), "tee");
  EXPECT_EQ(Nearest("include", words), "");
  EXPECT_EQ(Nearest("xyz", words), "");
  EXPECT_EQ(Nearest("", words), "");
  EXPECT_EQ(Nearest(std::string(100'000, 'n'), words), "");
}

}  // namespace
}  // namespace dslaunch::suggest_test
