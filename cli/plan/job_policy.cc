#include "cli/plan/job_policy.h"

namespace dslaunch {
namespace {

constexpr uint32_t kJoinMs = 30'000;
// Limit of the ready barrier in milliseconds. It exceeds kSpawnTimeout, whose error names the
// program.
constexpr uint32_t kReadyMs = 60'000;
constexpr uint32_t kTeardownMs = 5'000;
constexpr int kUsualRestarts = 3;
constexpr int64_t kCheckSlackMs = 15'000;  // time for the checks of folders and for nvidia-smi

// A node that fails this often within the cool-down gets no ranks until the cool-down ends.
constexpr uint32_t kNodeFailures = 3;
constexpr uint32_t kCooldownMs = 600'000;

pb::Policy::OnHang ToProto(OnHang on_hang) {
  switch (on_hang) {
    case OnHang::kKill:
      return pb::Policy::KILL;
    case OnHang::kRestart:
      return pb::Policy::RESTART;
    case OnHang::kReport:
      break;
  }
  return pb::Policy::REPORT;
}

void AddRestartOn(const std::vector<RestartOn>& classes, pb::Policy& policy) {
  for (const RestartOn one : classes) {
    if (one == RestartOn::kAny) return policy.clear_restart_on();
    policy.add_restart_on(one == RestartOn::kTransient   ? pb::Cause::RESTART_CAN_HELP
                          : one == RestartOn::kPermanent ? pb::Cause::RESTART_CANNOT_HELP
                                                         : pb::Cause::RESTART_UNKNOWN);
  }
}

// Returns the reason why stdin is not read by default, as a clause; empty if stdin is read.
std::string HeldBack(const UserStdin& input) {
  if (input.offset > 0)
    return "a file of which " + std::to_string(input.offset) + " bytes were read before";
  return input.shell.empty() ? "" : "which is the stdin of the shell " + input.shell + " too";
}

}  // namespace

Result<pb::Policy> MakePolicy(const LaunchOptions& options, const LaunchPlan& plan) {
  const bool others_can_go_on = plan.nodes.size() > static_cast<size_t>(plan.min_nodes);
  const int max_restarts = options.max_restarts.value_or(
      others_can_go_on || options.min_nodes || options.has_rank_range() ? kUsualRestarts : 0);
  if (options.on_hang == OnHang::kRestart && max_restarts == 0) {
    return Error{ExitCode::kUsage,
                 "--on_hang restart needs restarts: add --max_restarts N, or take --on_hang kill"};
  }
  pb::Policy policy;
  policy.set_max_restarts(static_cast<uint32_t>(max_restarts));
  policy.set_backoff_ms(static_cast<uint32_t>(options.restart_delay_ms));
  policy.set_max_backoff_ms(static_cast<uint32_t>(kMaxRestartDelayMs));
  policy.set_min_nodes(static_cast<uint32_t>(plan.min_nodes));
  policy.set_max_nodes(static_cast<uint32_t>(plan.max_nodes));
  if (others_can_go_on) {
    policy.set_node_failures(kNodeFailures);
    policy.set_cooldown_ms(kCooldownMs);
  }
  policy.set_on_join(options.on_join == OnJoin::kNow ? pb::Policy::AT_ONCE
                                                     : pb::Policy::AT_RESTART);
  AddRestartOn(options.restart_on, policy);
  policy.set_on_hang(ToProto(options.on_hang));
  policy.set_hang_ms(static_cast<uint32_t>(options.hang_ms));
  policy.set_setup_hang_ms(static_cast<uint32_t>(options.setup_hang_ms));
  policy.set_standstill_ms(static_cast<uint32_t>(options.standstill_ms));
  return policy;
}

StdinPlan PlanStdin(const LaunchOptions& options, int ranks, const UserStdin& input,
                    const UserTerminal& terminal) {
  using Kind = UserStdin::Kind;
  StdinPlan plan;
  const bool is_program = options.mode == LaunchOptions::Mode::kProgram && !options.runs_trainer;
  const bool is_asked = options.stdin_to_rank_0.value_or(false);
  const bool is_piped = input.kind == Kind::kPipe || input.kind == Kind::kFile;
  const bool may_read = is_program && options.stdin_to_rank_0.value_or(true);
  if (options.detach) {
    if (is_asked || (may_read && is_piped && input.offset == 0 && input.shell.empty()))
      plan.notice = "the ranks of a detached job read no stdin; have the program read a file";
    return plan;
  }
  const bool is_typed =
      input.kind == Kind::kTerminal && terminal.is_output && (ranks == 1 || options.pty);
  const std::string held = HeldBack(input);
  const bool reads = is_asked || (may_read && (is_typed || (is_piped && held.empty())));
  plan.rank_stdin.set_from_front_end(reads);
  plan.rank_stdin.set_terminal(options.pty);
  plan.rank_stdin.set_columns(static_cast<uint32_t>(terminal.columns));
  plan.rank_stdin.set_rows(static_cast<uint32_t>(terminal.rows));
  if (reads && !is_asked && is_piped && ranks != 1) {
    plan.notice =
        "rank 0 reads this command's stdin, other ranks an empty one; --stdin none gives it to "
        "none";
  }
  if (!reads && may_read && is_piped)
    plan.notice = "no rank reads this command's stdin, " + held + "; --stdin 0 gives it to rank 0";
  return plan;
}

pb::MeasureRequest MakeNodeTests(const LaunchOptions& options, const std::string& log_dir) {
  pb::MeasureRequest check;
  const auto add_folder = [&](pb::MeasuredFolder::Use use, const std::string& path) {
    check.add_folders()->set_use(use);
    check.mutable_folders()->rbegin()->set_path(path);
  };
  add_folder(pb::MeasuredFolder::LOGS, log_dir);
  const std::string checkpoints = options.train.checkpoint_dir.value_or("");
  if (checkpoints.starts_with('/')) add_folder(pb::MeasuredFolder::CHECKPOINTS, checkpoints);
  check.set_gpu_wait_ms(static_cast<uint32_t>(options.gpu_free_timeout_ms));
  if (options.health_command.empty()) return check;
  check.mutable_health()->mutable_argv()->Assign(options.health_command.begin(),
                                                 options.health_command.end());
  check.mutable_health()->set_timeout_ms(static_cast<uint32_t>(options.health_timeout_ms));
  return check;
}

std::optional<pb::MeasureRequest> MakeNodeCheck(const LaunchOptions& options,
                                                const std::string& log_dir) {
  if (!options.preflight) return std::nullopt;
  return MakeNodeTests(options, log_dir);
}

pb::Timeouts MakeTimeouts(const LaunchOptions& options) {
  pb::Timeouts timeouts;
  timeouts.set_grace_ms(static_cast<uint32_t>(options.grace_ms));
  timeouts.set_join_ms(kJoinMs);
  timeouts.set_ready_ms(kReadyMs);
  timeouts.set_teardown_ms(kTeardownMs);
  timeouts.set_heartbeat_ms(static_cast<uint32_t>(options.heartbeat_ms));
  timeouts.set_suspect_ms(static_cast<uint32_t>(options.suspect_ms));
  timeouts.set_dead_ms(static_cast<uint32_t>(options.dead_ms));
  timeouts.set_lease_ms(static_cast<uint32_t>(options.lease_ms));
  timeouts.set_time_limit_ms(static_cast<uint64_t>(options.time_limit_ms));
  if (options.preflight) {
    const int64_t health_ms = options.health_command.empty() ? 0 : options.health_timeout_ms;
    const int64_t gpus_ms = options.device == DeviceChoice::kCpu ? 0 : options.gpu_free_timeout_ms;
    timeouts.set_check_ms(static_cast<uint32_t>(kCheckSlackMs + health_ms + gpus_ms));
  }
  return timeouts;
}

}  // namespace dslaunch
