// Tests jobs of many nodes through relays in virtual time: start, barriers, and the loss of a
// relay.
//   DSLAUNCH_TEST_FULL=1  tests up to 10,000 nodes
#include "tests/sim/relay_tree.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iomanip>
#include <iostream>

#include "cli/relay/relay_tree.h"

namespace dslaunch::sim {
namespace {

using Group = TreeJob::Group;
using Lost = TreeJob::Lost;

bool IsFull() { return std::getenv("DSLAUNCH_TEST_FULL") != nullptr; }

uint32_t Root(uint32_t nodes) {
  uint32_t root = 1;
  while (root * root < nodes) ++root;
  return root;
}

TreeRun RunAndPrint(uint32_t nodes, Lost lost = Lost::kNothing, Group group = Group::kLast,
                    uint32_t max_restarts = 0) {
  const TreeRun run = RunTree(/*seed=*/1, {.nodes = nodes,
                                           .fanout = Root(nodes),
                                           .lost = lost,
                                           .lost_group = group,
                                           .max_restarts = max_restarts});
  std::cout << std::fixed << std::setprecision(1) << nodes << " nodes, " << Root(nodes)
            << " relays: exit code " << run.exit_code.value_or(-1) << " after "
            << static_cast<double>(run.virtual_ms) / 1'000 << " s of virtual time, " << run.attempts
            << " attempts; for each node " << run.messages_per_node << " messages and "
            << run.cpu_us_per_node << " us of CPU time\n";
  EXPECT_EQ(run.error, "");
  return run;
}

TEST(RelayTreeSimulation, TimeAndMessagesPerNodeStayConstant) {
  const TreeRun small = RunAndPrint(100);
  for (const uint32_t nodes : {1'000u, IsFull() ? 10'000u : 2'000u}) {
    const TreeRun run = RunAndPrint(nodes);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_LT(run.messages_per_node, 2 * small.messages_per_node);
    EXPECT_LT(run.virtual_ms, 2 * small.virtual_ms);
  }
}

TEST(RelayTreeSimulation, LostRelayEndsJobWithoutRestarts) {
  for (const Group group : {Group::kLast, Group::kFirst}) {
    for (const Lost lost : {Lost::kRelay, Lost::kRelaysMachine}) {
      const TreeRun run = RunAndPrint(IsFull() ? 4'000 : 400, lost, group);
      ASSERT_TRUE(run.exit_code);
      EXPECT_NE(run.exit_code, 0);
      EXPECT_EQ(run.attempts, 1u);
    }
  }
}

TEST(RelayTreeSimulation, RestartsAfterLosingRelay) {
  for (const Group group : {Group::kLast, Group::kFirst}) {
    for (const Lost lost : {Lost::kRelay, Lost::kRelaysMachine}) {
      const TreeRun run = RunAndPrint(IsFull() ? 4'000 : 400, lost, group, /*max_restarts=*/3);
      EXPECT_EQ(run.exit_code, 0);
      EXPECT_GT(run.attempts, 1u);
    }
  }
}

}  // namespace
}  // namespace dslaunch::sim
