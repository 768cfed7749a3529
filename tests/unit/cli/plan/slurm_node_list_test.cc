#include "cli/plan/slurm_node_list.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace dslaunch::slurm_node_list_test {
namespace {

TEST(ExpandNodeListTest, MatchesScontrolShowHostnames) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"", {}},
      {"a", {"a"}},
      {"a,b", {"a", "b"}},
      {"n[1-3]", {"n1", "n2", "n3"}},
      {"n[08-11]", {"n08", "n09", "n10", "n11"}},
      {"n[001-002,010]", {"n001", "n002", "n010"}},
      {"n[9-10]", {"n9", "n10"}},
      {"n[7]", {"n7"}},
      {"login,gpu[1-2]-ib[0-1],x", {"login", "gpu1-ib0", "gpu1-ib1", "gpu2-ib0", "gpu2-ib1", "x"}},
      {"r[1-2]n3.cluster", {"r1n3.cluster", "r2n3.cluster"}},
      {"[5-6]", {"5", "6"}},
  };
  for (const auto& [list, names] : cases) {
    const auto expanded = ExpandNodeList(list);
    ASSERT_TRUE(expanded.ok()) << list << ": " << expanded.error().message;
    EXPECT_EQ(*expanded, names) << list;
  }
  EXPECT_EQ(ExpandNodeList("n[1-50000],m[1-50000]")->size(), kMaxListedNodes);
}

TEST(ExpandNodeListTest, RejectsInvalidAndHugeLists) {
  for (const char* list :
       {"n[1-3", "n1-3]", "n[1-[2-3]]", "n[]", "n[a-b]", "n[3-1]", "n[1-]", "n[-1]", "n[1,]", ",a",
        "a,,b", "n[1--2]", "n[+1]", "n[0-99999999]", "n[1-99999999999999999999]",
        "n[1-50000],m[1-50001]", "n[1-1000]m[1-1000]", "n[0-18446744073709551615]"}) {
    EXPECT_FALSE(ExpandNodeList(list).ok()) << list;
  }
}

}  // namespace
}  // namespace dslaunch::slurm_node_list_test
