#include "rendezvous/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "proto/wire/cause.h"

namespace dslaunch::restart_policy_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Clock::time_point At(int seconds) { return Clock::time_point(milliseconds(1000 * seconds)); }

pb::Cause Exit(uint32_t node, int code = 1) {
  pb::Cause cause = MakeCause(pb::Cause::WORKER_EXIT, node, ExitCode::kInternal, "");
  cause.set_exit_code(code);
  cause.set_attempt(1);
  return cause;
}

std::vector<pb::Node> Nodes() {
  std::vector<pb::Node> nodes(3);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].set_name("node" + std::to_string(i + 1));
  return nodes;
}

pb::Policy Restarts(uint32_t max) {
  pb::Policy policy;
  policy.set_max_restarts(max);
  return policy;
}

// Returns attempts that ended one second apart because of node 1. `best_steps`: the best step of
// each attempt.
std::vector<EndedAttempt> Attempts(const std::vector<std::optional<uint64_t>>& best_steps) {
  std::vector<EndedAttempt> ended;
  for (const auto& step : best_steps)
    ended.push_back({Exit(1), At(static_cast<int>(ended.size())), step});
  return ended;
}

RestartDecision Decide(const std::vector<EndedAttempt>& ended, const pb::Policy& policy) {
  return DecideRestart(ended.back().at, ended.back().cause, ended, policy, Nodes());
}

TEST(RestartPolicyTest, DoesNotRestartByDefault) {
  const RestartDecision decision = Decide(Attempts({{}}), pb::Policy());
  EXPECT_FALSE(decision.restart);
  EXPECT_THAT(decision.reason, HasSubstr("--max_restarts"));
}

TEST(RestartPolicyTest, OnlyMaxRestartsLimitsProgramWithoutSteps) {
  const pb::Policy policy = Restarts(3);
  const RestartDecision third = Decide(Attempts({{}, {}, {}}), policy);
  EXPECT_TRUE(third.restart);
  EXPECT_EQ(third.reason, "restart 3 of 3");
  const RestartDecision fourth = Decide(Attempts({{}, {}, {}, {}}), policy);
  EXPECT_FALSE(fourth.restart);
  EXPECT_EQ(fourth.reason, "restart 3 of 3 was the last (--max_restarts)");
}

TEST(RestartPolicyTest, BackOffDoublesUpToItsMaximum) {
  pb::Policy policy = Restarts(100);
  policy.set_backoff_ms(1'000);
  policy.set_max_backoff_ms(5'000);
  std::vector<EndedAttempt> ended;
  for (const int expected_ms : {1'000, 2'000, 4'000, 5'000, 5'000}) {
    ended.push_back({Exit(1), At(0), {}});
    EXPECT_EQ(Decide(ended, policy).delay.count(), expected_ms);
  }
  ended.resize(90, ended.front());
  EXPECT_EQ(Decide(ended, policy).delay.count(), 5'000);
  EXPECT_THAT(Decide(ended, policy).reason, HasSubstr("restart 90 of 100 in 5 s"));
}

TEST(RestartPolicyTest, DoesNotPauseAfterSignalFromOutside) {
  pb::Policy policy = Restarts(100);
  policy.set_backoff_ms(1'000);
  policy.set_max_backoff_ms(5'000);
  const auto pause_after = [&](int signal, bool out_of_memory) {
    pb::Cause cause = Exit(1, 128 + signal);
    if (signal != 0) cause.set_kind(pb::Cause::WORKER_SIGNAL);
    cause.set_signal(signal);
    cause.set_out_of_memory(out_of_memory);
    return Decide({{cause, At(0), {}}}, policy).delay.count();
  };
  for (const int signal : {SIGKILL, SIGTERM, SIGHUP}) EXPECT_EQ(pause_after(signal, false), 0);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, 0})
    EXPECT_EQ(pause_after(signal, false), 1'000) << signal;
  EXPECT_EQ(pause_after(SIGKILL, true), 1'000);
}

TEST(RestartPolicyTest, TwoAttemptsWithoutANewStepAreALoop) {
  const pb::Policy policy = Restarts(100);
  EXPECT_TRUE(Decide(Attempts({100}), policy).restart);
  EXPECT_TRUE(Decide(Attempts({100, 100}), policy).restart);
  const RestartDecision loop = Decide(Attempts({100, 90, 100}), policy);
  EXPECT_FALSE(loop.restart);
  EXPECT_EQ(loop.reason,
            "restart loop without a new step: two attempts in a row did not get beyond step 100");
  EXPECT_FALSE(Decide(Attempts({100, {}, {}}), policy).restart);
  EXPECT_TRUE(Decide(Attempts({100, {}, 101, {}}), policy).restart);
  // Before its first step, a program counts as a program that does not report steps.
  EXPECT_TRUE(Decide(Attempts({{}, {}, {}, 1, 1}), policy).restart);
}

TEST(RestartPolicyTest, EndForJoiningNodeCostsNoRestart) {
  std::vector<EndedAttempt> ended = Attempts({100, 100, {}, {}});
  ended[1].cause = pb::Cause();
  ended[2].cause = pb::Cause();
  EXPECT_EQ(CountFailed(ended), 2u);
  const RestartDecision decision = Decide(ended, Restarts(2));
  EXPECT_TRUE(decision.restart);
  EXPECT_THAT(decision.reason, HasSubstr("restart 2 of 2"));
}

TEST(RestartPolicyTest, DoesNotRestartAfterCausesThatRecur) {
  const struct {
    pb::Cause::Kind kind;
    int exit_code;
    uint64_t attempt;
    const char* reason;
  } cases[] = {
      {pb::Cause::INTERRUPTED, 130, 1, "the user ended"},
      {pb::Cause::INTERNAL, 70, 1, "bug"},
      {pb::Cause::START_FAILED, 126, 1, "the program cannot be started"},
      {pb::Cause::START_FAILED, 127, 1, "the program cannot be started"},
      {pb::Cause::WORKER_EXIT, 64, 1, "exit code 64"},
      {pb::Cause::WORKER_EXIT, 65, 1, "exit code 65"},
      {pb::Cause::START_FAILED, 65, 1, "exit code 65"},
      {pb::Cause::TIMED_OUT, 75, 0, "had not started"},
      {pb::Cause::WORKER_EXIT, 85, 1, "stopped on request"},
  };
  for (const auto& one : cases) {
    EndedAttempt attempt{Exit(1, one.exit_code), At(0), {}};
    attempt.cause.set_kind(one.kind);
    attempt.cause.set_attempt(one.attempt);
    const RestartDecision decision = Decide({attempt}, Restarts(5));
    EXPECT_FALSE(decision.restart) << one.reason;
    EXPECT_THAT(decision.reason, HasSubstr(one.reason));
  }
}

TEST(RestartPolicyTest, RestartsAfterCausesThatMayNotRecur) {
  for (const auto kind : {pb::Cause::WORKER_EXIT, pb::Cause::WORKER_SIGNAL, pb::Cause::NODE_LOST,
                          pb::Cause::HANG, pb::Cause::TIMED_OUT, pb::Cause::START_FAILED}) {
    EndedAttempt attempt{Exit(1, 75), At(0), {}};
    attempt.cause.set_kind(kind);
    EXPECT_TRUE(Decide({attempt}, Restarts(1)).restart) << pb::Cause::Kind_Name(kind);
  }
}

TEST(RestartPolicyTest, SetsAsideNodeThatFailsOftenUntilCooldown) {
  pb::Policy policy = Restarts(100);
  policy.set_node_failures(2);
  policy.set_cooldown_ms(60'000);
  std::vector<EndedAttempt> ended = {{Exit(1), At(0), {}}, {Exit(2), At(10), {}}};
  EXPECT_THAT(Decide(ended, policy).set_aside, IsEmpty());
  ended.push_back({Exit(1), At(50), {}});
  const RestartDecision decision = Decide(ended, policy);
  EXPECT_TRUE(decision.restart);
  EXPECT_THAT(decision.set_aside, ElementsAre(1u));
  EXPECT_THAT(decision.reason, HasSubstr("node2 failed 2 times within 60 s"));
  EXPECT_THAT(NodesSetAside(At(109), ended, policy), ElementsAre(1u));
  EXPECT_THAT(NodesSetAside(At(110), ended, policy), IsEmpty());
  // Failures that are further apart than the cool-down are not added up.
  ended = {{Exit(1), At(0), {}}, {Exit(1), At(60), {}}};
  EXPECT_THAT(Decide(ended, policy).set_aside, IsEmpty());
}

TEST(RestartPolicyTest, SetsAsideNodeThatIsCauseOfTwoHangs) {
  pb::Policy policy = Restarts(100);
  policy.set_node_failures(3);
  policy.set_cooldown_ms(60'000);
  const auto hang = [](uint32_t node, int rank, int at_second) {
    EndedAttempt attempt{Exit(node, 75), At(at_second), {}};
    attempt.cause.set_kind(pb::Cause::HANG);
    attempt.cause.set_rank(rank);
    return attempt;
  };
  std::vector<EndedAttempt> ended = {hang(1, 3, 0)};
  EXPECT_THAT(Decide(ended, policy).set_aside, IsEmpty());
  ended.push_back(hang(1, 2, 10));
  const RestartDecision decision = Decide(ended, policy);
  EXPECT_THAT(decision.set_aside, ElementsAre(1u));
  EXPECT_THAT(decision.reason, HasSubstr("node2 was the cause of 2 hangs within 60 s"));
  // Without a rank, the hang's node is unknown.
  ended = {hang(1, -1, 0), hang(1, -1, 10), hang(1, -1, 20)};
  EXPECT_THAT(Decide(ended, policy).set_aside, IsEmpty());
}

TEST(RestartPolicyTest, ObeysRestartOn) {
  const auto decide = [](pb::Cause::Restart verdict, const pb::Policy& policy) {
    std::vector<EndedAttempt> ended = Attempts({{}});
    ended.back().cause.set_restart(verdict);
    ended.back().cause.set_restart_reason("a module is missing");
    return Decide(ended, policy);
  };
  pb::Policy policy = Restarts(3);
  EXPECT_TRUE(decide(pb::Cause::RESTART_CANNOT_HELP, policy).restart) << "any by default";
  policy.add_restart_on(pb::Cause::RESTART_CAN_HELP);
  EXPECT_TRUE(decide(pb::Cause::RESTART_CAN_HELP, policy).restart);
  EXPECT_FALSE(decide(pb::Cause::RESTART_UNKNOWN, policy).restart);
  const RestartDecision permanent = decide(pb::Cause::RESTART_CANNOT_HELP, policy);
  EXPECT_FALSE(permanent.restart);
  EXPECT_EQ(permanent.reason,
            "a restart cannot help (a module is missing), and --restart_on allows no restart after "
            "such a failure");
  policy.add_restart_on(pb::Cause::RESTART_UNKNOWN);
  EXPECT_TRUE(decide(pb::Cause::RESTART_UNKNOWN, policy).restart);
}

TEST(RestartPolicyTest, RestartCanHelpAfterLossAndHang) {
  for (const pb::Cause::Kind kind : {pb::Cause::NODE_LOST, pb::Cause::HANG, pb::Cause::TIMED_OUT}) {
    pb::Cause cause;
    cause.set_kind(kind);
    EXPECT_EQ(RestartVerdictOf(cause), pb::Cause::RESTART_CAN_HELP);
  }
}

}  // namespace
}  // namespace dslaunch::restart_policy_test
