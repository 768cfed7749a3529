#include "agent/supervisor/graceful_kill.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr milliseconds kKillAgainEvery{50};
constexpr milliseconds kTermBeforeKill{2'000};  // for programs that heed SIGTERM only

}  // namespace

GracefulKillDecision DecideGracefulKill(const GracefulKillState& state, Clock::time_point now,
                                        size_t alive, const GracefulKillOptions& options) {
  GracefulKillDecision decision;
  decision.next = state;
  if (alive == 0) {
    decision.action = GracefulKillAction::kDone;
    decision.reason = "nothing is left";
    return decision;
  }
  if (state.kill_sent) {
    const Clock::time_point give_up = *state.kill_sent + options.teardown;
    if (now >= give_up) {
      decision.action = GracefulKillAction::kGiveUp;
      decision.reason = "the time for teardown is over";
      return decision;
    }
    decision.action = GracefulKillAction::kKill;
    decision.reason = "a process outlived SIGKILL or was forked meanwhile";
    decision.wake = std::min(give_up, now + kKillAgainEvery);
    return decision;
  }
  const bool grace_over = state.begun && now >= *state.begun + options.grace;
  if (state.kill_now || grace_over) {
    decision.action = GracefulKillAction::kKill;
    decision.reason = state.kill_now ? "no grace period was requested" : "the grace is over";
    decision.next.kill_sent = now;
    decision.wake = std::min(now + options.teardown, now + kKillAgainEvery);
    return decision;
  }
  const Clock::time_point begun = state.begun.value_or(now);
  const Clock::time_point kill_at = begun + options.grace;
  const Clock::time_point term_at = kill_at - std::min(options.grace / 2, kTermBeforeKill);
  const bool term_due = now >= term_at || (state.begun && state.ranks_ended);
  decision.reason = "within the grace";
  if (!state.begun || (!state.term_sent && term_due)) {
    decision.action = GracefulKillAction::kSignal;
    decision.signal = state.begun ? SIGTERM : state.first_signal;
    decision.reason = state.begun ? "SIGTERM follows" : "the graceful kill begins";
    decision.next.begun = begun;
    decision.next.term_sent = decision.signal == SIGTERM;
  }
  decision.wake = decision.next.term_sent ? kill_at : term_at;
  return decision;
}

}  // namespace dslaunch
