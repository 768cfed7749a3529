#include "cli/core/end_decision.h"

#include <gtest/gtest.h>

namespace dslaunch::end_decision_test {
namespace {

constexpr EndView kEnded{.ended = true, .stream_ended = true, .is_part = true};
constexpr EndView kRuns{.is_part = true};
constexpr EndView kSilent{.given_up = true, .is_part = true};
constexpr EndView kCameLate{};

TEST(EndDecisionTest, EndsWithTheLastNode) {
  EXPECT_EQ(DecideEnd({kEnded, kEnded}), EndDecision::kEnd);
  EXPECT_EQ(DecideEnd({kEnded, kRuns, kEnded}), EndDecision::kWait);
}

TEST(EndDecisionTest, WaitsBrieflyForSilentNodesAfterTheRestEnded) {
  EXPECT_EQ(DecideEnd({kEnded, kSilent}), EndDecision::kWaitBriefly);
  EXPECT_EQ(DecideEnd({kEnded, kCameLate, kSilent}), EndDecision::kWaitBriefly);
  EXPECT_EQ(DecideEnd({kRuns, kCameLate, kSilent}), EndDecision::kWait);
}

// The node's supervisor is ending the node's processes, so the end is awaited.
TEST(EndDecisionTest, WaitsForSilentNodeWhoseStreamEnded) {
  EndView ending = kSilent;
  ending.stream_ended = true;
  EXPECT_EQ(DecideEnd({kEnded, ending}), EndDecision::kWait);
}

}  // namespace
}  // namespace dslaunch::end_decision_test
