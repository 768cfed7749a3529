#include "cli/plan/job_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::job_policy_test {
namespace {

using testing::HasSubstr;

LaunchPlan Plan(size_t nodes, int min_nodes, int max_nodes) {
  LaunchPlan plan;
  plan.nodes.resize(nodes);
  plan.min_nodes = min_nodes;
  plan.max_nodes = max_nodes;
  return plan;
}

pb::Policy Policy(const LaunchOptions& options, const LaunchPlan& plan) {
  const Result<pb::Policy> policy = MakePolicy(options, plan);
  EXPECT_TRUE(policy.ok());
  return policy.ok() ? *policy : pb::Policy();
}

TEST(MakePolicyTest, RestartsByDefaultOnlyWithSparesOrNodeRange) {
  LaunchOptions options;
  EXPECT_EQ(Policy(options, Plan(2, 2, 2)).max_restarts(), 0u);
  EXPECT_EQ(Policy(options, Plan(3, 2, 2)).max_restarts(), 3u);
  EXPECT_EQ(Policy(options, Plan(3, 2, 3)).max_restarts(), 3u);
  options.max_restarts = 0;
  EXPECT_EQ(Policy(options, Plan(3, 2, 3)).max_restarts(), 0u);
  options.max_restarts = 7;
  EXPECT_EQ(Policy(options, Plan(2, 2, 2)).max_restarts(), 7u);
}

TEST(MakePolicyTest, SetsNodesAsideOnlyIfOthersCanContinue) {
  EXPECT_EQ(Policy({}, Plan(2, 2, 2)).node_failures(), 0u);
  EXPECT_GT(Policy({}, Plan(3, 2, 3)).node_failures(), 0u);
  EXPECT_GT(Policy({}, Plan(3, 2, 3)).cooldown_ms(), 0u);
}

TEST(MakePolicyTest, CopiesOptions) {
  LaunchOptions options;
  options.max_restarts = 1;
  options.restart_delay_ms = 250;
  options.on_join = OnJoin::kNow;
  options.on_hang = OnHang::kRestart;
  options.hang_ms = 5000;
  options.standstill_ms = 6000;
  options.setup_hang_ms = 7000;
  const pb::Policy policy = Policy(options, Plan(4, 2, 3));
  EXPECT_EQ(policy.min_nodes(), 2u);
  EXPECT_EQ(policy.max_nodes(), 3u);
  EXPECT_EQ(policy.backoff_ms(), 250u);
  EXPECT_EQ(policy.max_backoff_ms(), 30'000u);
  EXPECT_EQ(policy.on_join(), pb::Policy::AT_ONCE);
  EXPECT_EQ(policy.on_hang(), pb::Policy::RESTART);
  EXPECT_EQ(policy.hang_ms(), 5000u);
  EXPECT_EQ(policy.standstill_ms(), 6000u);
  EXPECT_EQ(policy.setup_hang_ms(), 7000u);
}

TEST(MakePolicyTest, RejectsRestartOnHangWithoutRestarts) {
  LaunchOptions options;
  options.on_hang = OnHang::kRestart;
  const Result<pb::Policy> policy = MakePolicy(options, Plan(1, 1, 1));
  ASSERT_FALSE(policy.ok());
  EXPECT_EQ(policy.error().code, ExitCode::kUsage);
  EXPECT_THAT(policy.error().message, HasSubstr("add --max_restarts N"));
}

constexpr UserTerminal kTerminal{.is_output = true, .columns = 100, .rows = 30};
const UserStdin kTyped{.kind = UserStdin::Kind::kTerminal, .shell = {}, .offset = 0};
const UserStdin kPipe{.kind = UserStdin::Kind::kPipe, .shell = {}, .offset = 0};
const UserStdin kFile{.kind = UserStdin::Kind::kFile, .shell = {}, .offset = 0};

bool Reads(const LaunchOptions& options, int ranks, const UserStdin& input,
           const UserTerminal& terminal = kTerminal) {
  return PlanStdin(options, ranks, input, terminal).rank_stdin.from_front_end();
}

// The terminal belongs to the only rank, so that breakpoint() works as without a launcher. With
// several ranks, no rank reads the terminal.
TEST(PlanStdinTest, GivesTerminalToOnlyRank) {
  LaunchOptions options;
  EXPECT_TRUE(Reads(options, 1, kTyped));
  EXPECT_FALSE(PlanStdin(options, 1, kTyped, kTerminal).rank_stdin.terminal());
  EXPECT_FALSE(Reads(options, 2, kTyped));
  EXPECT_FALSE(Reads(options, 0, kTyped));
  EXPECT_FALSE(Reads(options, 1, kTyped, {}));
  EXPECT_FALSE(Reads(options, 1, {}));
  options.mode = LaunchOptions::Mode::kTrain;
  EXPECT_FALSE(Reads(options, 1, kTyped));
  options = {};
  options.stdin_to_rank_0 = false;
  EXPECT_FALSE(Reads(options, 1, kTyped));
  options.stdin_to_rank_0 = true;
  EXPECT_TRUE(Reads(options, 8, {}));
  options = {};
  options.pty = true;
  const StdinPlan plan = PlanStdin(options, 8, kTyped, kTerminal);
  EXPECT_TRUE(plan.rank_stdin.from_front_end());
  EXPECT_TRUE(plan.rank_stdin.terminal());
  EXPECT_EQ(plan.rank_stdin.columns(), 100u);
}

TEST(PlanStdinTest, GivesPipeOrFileToRankZero) {
  LaunchOptions options;
  for (const UserStdin& input : {kPipe, kFile}) {
    EXPECT_TRUE(Reads(options, 1, input, {}));
    EXPECT_EQ(PlanStdin(options, 1, input, {}).notice, "");
    EXPECT_TRUE(Reads(options, 8, input));
    EXPECT_THAT(PlanStdin(options, 8, input, {}).notice,
                HasSubstr("rank 0 reads this command's stdin"));
  }
  options.runs_trainer = true;
  EXPECT_FALSE(Reads(options, 1, kPipe));
  options = {};
  options.stdin_to_rank_0 = false;
  EXPECT_FALSE(Reads(options, 1, kPipe));
  EXPECT_EQ(PlanStdin(options, 1, kPipe, {}).notice, "") << "the user said so";
}

// The shell may be reading the file too, as in `while read host; do dslaunch ...; done < list`.
TEST(PlanStdinTest, LeavesFileThatShellMayBeReading) {
  UserStdin shared = kPipe;
  shared.shell = "bash (process 17)";
  UserStdin begun = kFile;
  begun.offset = 6;
  for (const auto& [input, why] :
       {std::pair(shared, ", which is the stdin of the shell bash (process 17) too; "),
        std::pair(begun, ", a file of which 6 bytes were read before; ")}) {
    LaunchOptions options;
    EXPECT_FALSE(Reads(options, 1, input));
    EXPECT_EQ(
        PlanStdin(options, 1, input, kTerminal).notice,
        std::string("no rank reads this command's stdin") + why + "--stdin 0 gives it to rank 0");
    options.stdin_to_rank_0 = true;
    EXPECT_TRUE(Reads(options, 1, input));
    EXPECT_EQ(PlanStdin(options, 1, input, kTerminal).notice, "");
  }
}

TEST(PlanStdinTest, DetachedJobReadsNothing) {
  LaunchOptions options;
  options.detach = options.pty = true;
  EXPECT_FALSE(PlanStdin(options, 1, kTyped, kTerminal).rank_stdin.terminal());
  EXPECT_FALSE(Reads(options, 1, kPipe));
  EXPECT_EQ(PlanStdin(options, 1, kTyped, kTerminal).notice, "");
  EXPECT_THAT(PlanStdin(options, 1, kPipe, kTerminal).notice, HasSubstr("read a file"));
}

TEST(MakeNodeCheckTest, TestsOnlyWithPreflight) {
  EXPECT_FALSE(MakeNodeCheck({}, "/logs"));
  EXPECT_EQ(MakeTimeouts({}).check_ms(), 0u);
  LaunchOptions options;
  options.preflight = true;
  options.train.checkpoint_dir = "relative";
  const auto check = MakeNodeCheck(options, "/logs");
  ASSERT_TRUE(check);
  ASSERT_EQ(check->folders_size(), 1) << "a relative folder is another one on each node";
  EXPECT_EQ(check->folders(0).path(), "/logs");
  EXPECT_FALSE(check->has_health());
  EXPECT_EQ(check->for_ms(), 0u) << "nothing is measured that needs other nodes to compare with";
}

TEST(MakeNodeCheckTest, AllowsTimeOfHealthCommandAndGpus) {
  LaunchOptions options;
  options.preflight = true;
  options.health_command = {"/opt/check", "--quick"};
  options.health_timeout_ms = 7'000;
  options.gpu_free_timeout_ms = 50'000;
  const auto check = MakeNodeCheck(options, "");
  ASSERT_TRUE(check);
  EXPECT_THAT(check->health().argv(), testing::ElementsAre("/opt/check", "--quick"));
  EXPECT_EQ(check->health().timeout_ms(), 7'000u);
  EXPECT_GE(MakeTimeouts(options).check_ms(), 57'000u);
  options.device = DeviceChoice::kCpu;
  EXPECT_LT(MakeTimeouts(options).check_ms(), 57'000u);
}

TEST(MakeTimeoutsTest, CopiesOptions) {
  LaunchOptions options;
  options.heartbeat_ms = 200;
  options.suspect_ms = 600;
  options.dead_ms = 2000;
  options.lease_ms = 30'000;
  options.grace_ms = 1000;
  const pb::Timeouts timeouts = MakeTimeouts(options);
  EXPECT_EQ(timeouts.heartbeat_ms(), 200u);
  EXPECT_EQ(timeouts.suspect_ms(), 600u);
  EXPECT_EQ(timeouts.dead_ms(), 2000u);
  EXPECT_EQ(timeouts.lease_ms(), 30'000u);
  EXPECT_EQ(timeouts.grace_ms(), 1000u);
  EXPECT_GT(timeouts.join_ms(), 0u);
}

}  // namespace
}  // namespace dslaunch::job_policy_test
