#include "agent/supervisor/kill_ladder.h"

namespace dslaunch {
namespace {

constexpr milliseconds kKillAgainEvery{50};

}  // namespace

LadderDecision DecideLadder(const LadderState& state, Clock::time_point now, size_t alive,
                            const LadderOptions& options) {
  LadderDecision decision;
  decision.next = state;
  if (alive == 0) {
    decision.action = LadderAction::kDone;
    decision.reason = "nothing is left";
    return decision;
  }
  if (state.kill_sent) {
    const Clock::time_point give_up = *state.kill_sent + options.teardown;
    if (now >= give_up) {
      decision.action = LadderAction::kGiveUp;
      decision.reason = "the time for teardown is over";
      return decision;
    }
    decision.action = LadderAction::kKill;
    decision.reason = "something outlived SIGKILL or was forked meanwhile";
    decision.wake = std::min(give_up, now + kKillAgainEvery);
    return decision;
  }
  const bool grace_over = state.term_sent && now >= *state.term_sent + options.grace;
  if (state.kill_now || grace_over) {
    decision.action = LadderAction::kKill;
    decision.reason = state.kill_now ? "no grace was asked for" : "the grace is over";
    decision.next.kill_sent = now;
    decision.wake = std::min(now + options.teardown, now + kKillAgainEvery);
    return decision;
  }
  if (!state.term_sent) {
    decision.action = LadderAction::kTerm;
    decision.reason = "the ladder begins";
    decision.next.term_sent = now;
    decision.wake = now + options.grace;
    return decision;
  }
  decision.reason = "within the grace";
  decision.wake = *state.term_sent + options.grace;
  return decision;
}

}  // namespace dslaunch
