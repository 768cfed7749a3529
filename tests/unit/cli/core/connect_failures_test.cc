#include "cli/core/connect_failures.h"

#include <gmock/gmock.h>

namespace dslaunch::connect_failures_test {
namespace {

using testing::ElementsAre;

NodeFailure Failure(const std::string& node, const std::string& text) {
  return {node, node, "node '" + node + "' (root@" + node + " port 22): " + text};
}

TEST(FoldFailuresTest, KeepsDifferentFailures) {
  EXPECT_THAT(
      FoldFailures({Failure("a", "it is off"), Failure("b", "it is on")}),
      ElementsAre("node 'a' (root@a port 22): it is off", "node 'b' (root@b port 22): it is on"));
  EXPECT_THAT(FoldFailures({}), ElementsAre());
}

TEST(FoldFailuresTest, FoldsEqualFailuresIntoOneLine) {
  EXPECT_THAT(FoldFailures({Failure("a", "it is off; switch it on"), Failure("b", "it burns"),
                            Failure("c", "it is off; switch it on")}),
              ElementsAre("a, c (2 nodes): it is off; switch it on",
                          "node 'b' (root@b port 22): it burns"));
}

TEST(FoldFailuresTest, IgnoresAddressesAndKeysWhenFolding) {
  EXPECT_THAT(FoldFailures({Failure("a", "cannot connect (10.0.0.1 port 22: refused)"),
                            Failure("b", "cannot connect (fd00::2 port 22: refused)")}),
              ElementsAre("a, b (2 nodes), as a: cannot connect (10.0.0.1 port 22: refused)"));
  EXPECT_THAT(FoldFailures({Failure("a1", "key SHA256:xY/1 is new; run ssh-keyscan -p 22 a1"),
                            Failure("a2", "key SHA256:zz+2 is new; run ssh-keyscan -p 22 a2")}),
              ElementsAre("a1, a2 (2 nodes), as a1: key SHA256:xY/1 is new; run ssh-keyscan -p 22 "
                          "a1"));
  EXPECT_THAT(FoldFailures({Failure("a", "after 3 s"), Failure("b", "after 4 s")}).size(), 2u);
}

TEST(FoldFailuresTest, DoesNotMatchNodeNameInsideAnotherName) {
  EXPECT_THAT(FoldFailures({Failure("node1", "node12 is off"), Failure("node2", "node12 is off")}),
              ElementsAre("node1, node2 (2 nodes): node12 is off"));
  EXPECT_THAT(FoldFailures({Failure("a", "a's key"), Failure("b", "b's key")}),
              ElementsAre("a, b (2 nodes), as a: a's key"));
}

TEST(FoldFailuresTest, FoldsMessagesWithOrWithoutNodeName) {
  EXPECT_THAT(FoldFailures({{"a", "a", "a: no such program"}, {"b", "b", "b: no such program"}}),
              ElementsAre("a, b (2 nodes): no such program"));
  EXPECT_THAT(FoldFailures({{"a", "a", "out of memory"}, {"b", "b", "out of memory"}}),
              ElementsAre("a, b (2 nodes): out of memory"));
}

TEST(FoldFailuresTest, CutsLongListsOfNames) {
  std::vector<NodeFailure> failures;
  for (int i = 0; i < 100; ++i) failures.push_back(Failure("n" + std::to_string(i), "off"));
  const std::vector<std::string> lines = FoldFailures(failures);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], testing::EndsWith("n31, and 68 more (100 nodes): off"));
}

}  // namespace
}  // namespace dslaunch::connect_failures_test
