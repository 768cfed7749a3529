#include "agent/supervisor/graceful_kill.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr milliseconds kKillAgainEvery{50};
constexpr milliseconds kTermBeforeKill{2'000};  // for programs that heed SIGTERM only
constexpr milliseconds kTermAgainEvery{1'000};  // once the ranks have ended

// When the next SIGTERM is due; `kill_at` if none is.
Clock::time_point NextTerm(const GracefulKillState& state, Clock::time_point begun,
                           Clock::time_point kill_at) {
  if (state.ranks_ended) return state.term_sent ? *state.term_sent + kTermAgainEvery : begun;
  return state.term_sent
             ? kill_at
             : kill_at - std::min<Clock::duration>((kill_at - begun) / 2, kTermBeforeKill);
}

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
  decision.reason = "within the grace";
  if (!state.begun || now >= std::min(kill_at, NextTerm(state, begun, kill_at))) {
    decision.action = GracefulKillAction::kSignal;
    decision.signal = state.begun ? SIGTERM : state.first_signal;
    decision.reason = !state.begun      ? "the graceful kill begins"
                      : state.term_sent ? "SIGTERM again, for what lost it"
                                        : "SIGTERM follows";
    decision.next.begun = begun;
    if (decision.signal == SIGTERM) decision.next.term_sent = now;
  }
  decision.wake = std::min(kill_at, NextTerm(decision.next, begun, kill_at));
  return decision;
}

}  // namespace dslaunch
