#include "agent/supervisor/graceful_kill.h"

namespace dslaunch {
namespace {

constexpr milliseconds kKillAgainEvery{50};

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
  const bool grace_over = state.term_sent && now >= *state.term_sent + options.grace;
  if (state.kill_now || grace_over) {
    decision.action = GracefulKillAction::kKill;
    decision.reason = state.kill_now ? "no grace period was requested" : "the grace is over";
    decision.next.kill_sent = now;
    decision.wake = std::min(now + options.teardown, now + kKillAgainEvery);
    return decision;
  }
  if (!state.term_sent) {
    decision.action = GracefulKillAction::kTerm;
    decision.reason = "the graceful kill begins";
    decision.next.term_sent = now;
    decision.wake = now + options.grace;
    return decision;
  }
  decision.reason = "within the grace";
  decision.wake = *state.term_sent + options.grace;
  return decision;
}

}  // namespace dslaunch
