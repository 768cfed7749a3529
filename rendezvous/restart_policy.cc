#include "rendezvous/restart_policy.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <utility>

#include "base/count.h"
#include "base/exit_code.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

// Number of hangs after which the node that caused them is set aside. A hang costs the time until
// it is detected, so this number is smaller than the number for other failures.
constexpr uint32_t kHangsOfNode = 2;

// Returns the reason why another attempt cannot help; empty if it might help.
std::string WhyHopeless(const pb::Cause& cause) {
  const bool unstartable = cause.exit_code() == ToInt(ExitCode::kCannotExecute) ||
                           cause.exit_code() == ToInt(ExitCode::kNotFound);
  switch (cause.kind()) {
    case pb::Cause::INTERRUPTED:
      return "the user ended the job";
    case pb::Cause::INTERNAL:
      return "the cause is a bug in dslaunch, which another attempt would not change";
    case pb::Cause::START_FAILED:
      if (unstartable)
        return "the program cannot be started, which another attempt would not change";
      break;
    case pb::Cause::TIMED_OUT:
      if (cause.attempt() == 0) return "the job had not started yet";
      break;
    default:
      break;
  }
  if (cause.exit_code() == ToInt(ExitCode::kUsage) ||
      cause.exit_code() == ToInt(ExitCode::kBadInput)) {
    return "exit code " + std::to_string(cause.exit_code()) +
           " means that the command line or the input is wrong, which another attempt would not "
           "change";
  }
  if (cause.exit_code() == ToInt(ExitCode::kPreempted)) {
    return "the program stopped on request, after a checkpoint (exit code 85); start the job again "
           "to continue";
  }
  return "";
}

// Returns the reason why policy.restart_on allows no restart after `cause`; empty if the policy
// allows a restart.
std::string WhyNotAllowed(const pb::Cause& cause, const pb::Policy& policy) {
  const pb::Cause::Restart verdict = RestartVerdictOf(cause);
  if (policy.restart_on().empty() || std::ranges::count(policy.restart_on(), verdict) > 0)
    return "";
  const std::string option = ", and --restart_on allows no restart after such a failure";
  if (verdict == pb::Cause::RESTART_CANNOT_HELP)
    return "a restart cannot help (" + cause.restart_reason() + ")" + option;
  if (verdict == pb::Cause::RESTART_CAN_HELP) return "a restart could help" + option;
  return "it is not known whether a restart can help" + option;
}

// Returns whether another process ended the rank by a signal, so that a pause before the next
// attempt would be useless. Returns false if memory was exhausted, or if the signal indicates an
// error of the program.
bool IsSignalFromOutside(const pb::Cause& cause) {
  constexpr std::array kSentByOthers = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  return cause.kind() == pb::Cause::WORKER_SIGNAL && !cause.out_of_memory() &&
         std::ranges::find(kSentByOthers, cause.signal()) != kSentByOthers.end();
}

bool Failed(const EndedAttempt& attempt) { return !IsSuccess(attempt.cause); }

// Returns whether at least two failed attempts since the last new step reached no further step.
// Sets `best` to the highest step of all attempts.
bool IsLoop(const std::vector<EndedAttempt>& ended, std::optional<uint64_t>& best) {
  int without_new_step = 0;
  for (const EndedAttempt& attempt : ended) {
    if (attempt.best_step > best) {  // nullopt compares less than any step
      best = attempt.best_step;
      without_new_step = 0;
    } else if (best && Failed(attempt)) {
      ++without_new_step;
    }
  }
  return without_new_step >= 2;
}

milliseconds BackOff(uint32_t restart, const pb::Policy& policy) {
  const uint64_t longest = std::max(policy.backoff_ms(), policy.max_backoff_ms());
  uint64_t delay = policy.backoff_ms();
  for (uint32_t i = 1; i < restart && delay < longest; ++i) delay *= 2;
  return milliseconds(std::min(delay, longest));
}

// Returns whether `most` consecutive elements of the ascending `times` lie within `cooldown`, and
// the last of these elements is less than `cooldown` ago.
bool Counts(Clock::time_point now, const std::vector<Clock::time_point>& times, size_t most,
            milliseconds cooldown) {
  for (size_t last = most - 1; last < times.size(); ++last) {
    if (times[last] - times[last + 1 - most] < cooldown && now - times[last] < cooldown)
      return true;
  }
  return false;
}

// Returns the reason why a node is set aside, such as " failed 3 times" or " was the cause of 2
// hangs".
std::string WhyAside(const std::vector<EndedAttempt>& ended, uint32_t node,
                     const pb::Policy& policy) {
  const auto failures = std::ranges::count_if(ended, [&](const EndedAttempt& attempt) {
    return Failed(attempt) && attempt.cause.node_index() == node;
  });
  if (std::cmp_less(failures, policy.node_failures()))
    return " was the cause of " + std::to_string(kHangsOfNode) + " hangs";
  return " failed " + std::to_string(policy.node_failures()) + " times";
}

}  // namespace

pb::Cause::Restart RestartVerdictOf(const pb::Cause& cause) {
  switch (cause.kind()) {
    case pb::Cause::NODE_LOST:
    case pb::Cause::NODE_LEFT:
    case pb::Cause::HANG:
    case pb::Cause::TIMED_OUT:
      return pb::Cause::RESTART_CAN_HELP;
    default:
      return cause.restart();
  }
}

uint32_t CountFailed(const std::vector<EndedAttempt>& ended) {
  return static_cast<uint32_t>(std::count_if(ended.begin(), ended.end(), Failed));
}

uint64_t BestStep(const std::vector<EndedAttempt>& ended) {
  uint64_t best = 0;
  for (const EndedAttempt& attempt : ended) best = std::max(best, attempt.best_step.value_or(0));
  return best;
}

std::vector<uint32_t> NodesSetAside(Clock::time_point now, const std::vector<EndedAttempt>& ended,
                                    const pb::Policy& policy) {
  if (policy.node_failures() == 0) return {};
  const milliseconds cooldown(policy.cooldown_ms());
  std::map<uint32_t, std::vector<Clock::time_point>> failures;
  std::map<uint32_t, std::vector<Clock::time_point>> hangs;
  for (const EndedAttempt& attempt : ended) {
    if (!Failed(attempt)) continue;
    const bool is_hang = attempt.cause.kind() == pb::Cause::HANG;
    // The rank that hung is unknown, so the hang counts for no node.
    if (is_hang && attempt.cause.rank() < 0) continue;
    failures[attempt.cause.node_index()].push_back(attempt.at);
    if (is_hang) hangs[attempt.cause.node_index()].push_back(attempt.at);
  }
  const size_t most_hangs = std::min<size_t>(kHangsOfNode, policy.node_failures());
  std::vector<uint32_t> set_aside;
  for (const auto& [node, times] : failures) {
    if (Counts(now, times, policy.node_failures(), cooldown) ||
        Counts(now, hangs[node], most_hangs, cooldown))
      set_aside.push_back(node);
  }
  return set_aside;
}

RestartDecision DecideRestart(Clock::time_point now, const pb::Cause& cause,
                              const std::vector<EndedAttempt>& ended, const pb::Policy& policy,
                              const std::vector<pb::Node>& nodes) {
  RestartDecision decision;
  decision.reason = WhyHopeless(cause);
  if (!decision.reason.empty()) return decision;
  if (policy.max_restarts() == 0) {
    decision.reason = "no restarts are allowed (--max_restarts)";
    return decision;
  }
  decision.reason = WhyNotAllowed(cause, policy);
  if (!decision.reason.empty()) return decision;
  const uint32_t restart = CountFailed(ended);
  if (restart > policy.max_restarts()) {
    decision.reason = "restart " + std::to_string(policy.max_restarts()) + " of " +
                      std::to_string(policy.max_restarts()) + " was the last (--max_restarts)";
    return decision;
  }
  std::optional<uint64_t> best;
  if (IsLoop(ended, best)) {
    decision.reason =
        "restart loop without a new step: two attempts in a row did not get beyond step " +
        std::to_string(*best);
    return decision;
  }
  decision.restart = true;
  if (!IsSignalFromOutside(cause)) decision.delay = BackOff(restart, policy);
  decision.set_aside = NodesSetAside(now, ended, policy);
  decision.reason =
      "restart " + std::to_string(restart) + " of " + std::to_string(policy.max_restarts());
  if (decision.delay.count() > 0) decision.reason += " in " + Seconds(decision.delay.count());
  if (best) decision.reason += "; the best step so far is " + std::to_string(*best);
  for (const uint32_t node : decision.set_aside) {
    decision.reason += "; " + nodes[node].name() + WhyAside(ended, node, policy) + " within " +
                       Seconds(static_cast<int64_t>(policy.cooldown_ms())) +
                       " and gets no ranks for as long, unless too few nodes would remain";
  }
  return decision;
}

}  // namespace dslaunch
