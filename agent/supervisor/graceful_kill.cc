#include "agent/supervisor/graceful_kill.h"

#include <algorithm>

namespace dslaunch {
namespace {

constexpr milliseconds kKillAgainEvery{50};
// Limit for a process to exit after SIGKILL, unless a disk blocks the process.
constexpr milliseconds kDiesWithin{500};
// Time for programs that handle only SIGTERM to exit.
constexpr milliseconds kTermBeforeKill{2'000};
constexpr milliseconds kTermAgainEvery{1'000};  // interval of SIGTERM after the ranks have exited
// Time for a process outside of the ranks' sessions to exit by itself after the ranks have exited.
constexpr milliseconds kApartEndsWithin{500};
// Time for a process outside of the ranks' sessions to exit after SIGKILL to the ranks.
constexpr milliseconds kApartKilledWithin{700};
// Time for a process that serves others to exit; replaces kApartEndsWithin and kApartKilledWithin.
constexpr milliseconds kServerEndsWithin{3'000};

// Makes one decision in steps. Each step returns whether it has determined the action.
class Decider {
 public:
  Decider(const GracefulKillState& state, Clock::time_point now, const LeftCount& left,
          const GracefulKillOptions& options)
      : now_(now), left_(left), options_(options), state_(state), is_first_(!state.begun) {
    if (is_first_) state_.begun = now;
    if (left_.ranks > 0)
      state_.apart_since.reset();
    else if (!state_.apart_since)
      state_.apart_since = now;
    kill_at_ = *state_.begun + options_.grace;
    if (!state_.kill_begun && (state_.kill_now || (!is_first_ && now_ >= kill_at_)))
      state_.kill_begun = now_;
  }

  GracefulKillDecision Decide() {
    if (left_.ranks + left_.apart == 0) {
      Act(GracefulKillAction::kDone, KillTargets::kAll, "nothing is left");
    } else if (const auto limit = TimeLimit(); limit && now_ >= *limit) {
      Act(GracefulKillAction::kGiveUp, KillTargets::kAll, "the time for teardown is over");
    } else {
      if (!KillApart() && !KillRanks() && !TermApart()) SignalRanks();
      decision_.wake = NextWake();
    }
    decision_.next = state_;
    return decision_;
  }

 private:
  void Act(GracefulKillAction action, KillTargets targets, const char* reason, int signal = 0) {
    decision_.action = action;
    decision_.targets = targets;
    decision_.reason = reason;
    decision_.signal = signal;
  }

  // Sends SIGKILL to all processes, including processes outside of the ranks' sessions, if that is
  // due.
  bool KillApart() {
    if (left_.apart == 0 || !state_.kill_begun || now_ < ApartKillAt()) return false;
    if (!state_.apart_kill_sent) state_.apart_kill_sent = now_;
    Act(GracefulKillAction::kKill, KillTargets::kAll,
        "the remaining processes do not end by themselves");
    return true;
  }

  bool KillRanks() {
    if (left_.ranks == 0 || !state_.kill_begun) return false;
    Act(GracefulKillAction::kKill, KillTargets::kRanks,
        *state_.kill_begun < now_ ? "a process outlived SIGKILL or was forked meanwhile"
        : state_.kill_now         ? "no grace period was requested"
                                  : "the grace is over");
    return true;
  }

  bool TermApart() {
    if (!state_.apart_since || now_ < ApartTermAt()) return false;
    state_.apart_term_sent = now_;
    Act(GracefulKillAction::kSignal, KillTargets::kAll,
        "processes with their own session outlive the ranks", SIGTERM);
    return true;
  }

  void SignalRanks() {
    decision_.reason = "within the grace";
    if (left_.ranks == 0 || state_.kill_begun) return;
    if (!is_first_ && now_ < RanksTermAt()) return;
    const int signal = is_first_ ? state_.first_signal : SIGTERM;
    Act(GracefulKillAction::kSignal, KillTargets::kRanks,
        is_first_          ? "the graceful kill begins"
        : state_.term_sent ? "SIGTERM again, for processes that missed it"
                           : "SIGTERM follows",
        signal);
    if (signal == SIGTERM) state_.term_sent = now_;
  }

  // Returns the time of the next SIGTERM to the ranks. If no SIGTERM is due, returns at least
  // `kill_at_`.
  Clock::time_point RanksTermAt() const {
    if (state_.ranks_ended)
      return state_.term_sent ? *state_.term_sent + kTermAgainEvery : *state_.begun;
    if (state_.term_sent) return kill_at_;
    return kill_at_ - std::min<Clock::duration>(options_.grace / 2, kTermBeforeKill);
  }

  Clock::time_point ApartTermAt() const {
    if (state_.apart_term_sent) return *state_.apart_term_sent + kTermAgainEvery;
    return *state_.apart_since + (left_.serves ? kServerEndsWithin : kApartEndsWithin);
  }

  // Returns the time of SIGKILL to the processes outside of the ranks' sessions. A process that got
  // SIGTERM before the SIGKILL to the ranks has had enough time. Precondition: kill_begun is set.
  Clock::time_point ApartKillAt() const {
    const Clock::time_point killed = *state_.kill_begun;
    if (state_.apart_term_sent && *state_.apart_term_sent < killed) return killed;
    return killed + std::min<Clock::duration>(options_.teardown / 2, left_.serves
                                                                         ? kServerEndsWithin
                                                                         : kApartKilledWithin);
  }

  // Returns the time limit of the kill; nullopt before SIGKILL was sent to all processes. The limit
  // is always after that signal, even if this process could not run for a long time.
  std::optional<Clock::time_point> TimeLimit() const {
    if (!state_.kill_begun || (left_.apart > 0 && !state_.apart_kill_sent)) return std::nullopt;
    const Clock::time_point end = *state_.kill_begun + options_.teardown;
    if (!state_.apart_kill_sent) return end;
    return std::max(end, *state_.apart_kill_sent + kDiesWithin);
  }

  Clock::time_point NextWake() const {
    const bool is_killing = decision_.action == GracefulKillAction::kKill;
    Clock::time_point next =
        TimeLimit().value_or(state_.kill_begun ? ApartKillAt() : std::max(kill_at_, now_));
    if (is_killing) next = std::min(next, now_ + kKillAgainEvery);
    if (is_killing && decision_.targets == KillTargets::kAll) return next;
    if (state_.apart_since) next = std::min(next, ApartTermAt());
    if (state_.kill_begun && left_.apart > 0) next = std::min(next, ApartKillAt());
    if (!state_.kill_begun && left_.ranks > 0) next = std::min(next, RanksTermAt());
    return next;
  }

  const Clock::time_point now_;
  const LeftCount left_;
  const GracefulKillOptions options_;
  GracefulKillState state_;  // state with which the next decision begins
  const bool is_first_;
  Clock::time_point kill_at_;
  GracefulKillDecision decision_;
};

}  // namespace

bool IsOfRanks(const ProcessInfo& info, pid_t session, std::span<const pid_t> groups) {
  return info.session == session || std::ranges::find(groups, info.session) != groups.end();
}

GracefulKillDecision DecideGracefulKill(const GracefulKillState& state, Clock::time_point now,
                                        const LeftCount& left, const GracefulKillOptions& options) {
  return Decider(state, now, left, options).Decide();
}

}  // namespace dslaunch
