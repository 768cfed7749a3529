// How a set of processes is ended: a first signal, SIGTERM, SIGKILL, a bounded wait for the last to
// go. The decision only; who sends the signals finds out whom to send them to.
#pragma once

#include <csignal>
#include <cstddef>
#include <optional>

#include "base/deadline.h"

namespace dslaunch {

struct GracefulKillOptions {
  milliseconds grace{10'000};    // between the first signal and SIGKILL
  milliseconds teardown{5'000};  // between SIGKILL and giving up
};

enum class GracefulKillAction {
  kNone,    // wait
  kSignal,  // `signal` to everything, then SIGCONT so that the stopped can heed it
  kKill,    // SIGKILL to everything; repeated, because a dying program may have forked
  kDone,    // nothing is left
  kGiveUp,  // something is left and did not end in time
};

// Where a graceful kill stands.
struct GracefulKillState {
  bool kill_now = false;  // no grace; may be set at any time
  int first_signal = SIGTERM;
  bool ranks_ended = false;  // what is left was started by ranks and saves nothing
  std::optional<Clock::time_point> begun = {};      // when the first signal went out
  std::optional<Clock::time_point> term_sent = {};  // when SIGTERM last went out
  std::optional<Clock::time_point> kill_sent = {};  // when SIGKILL first went out
};

struct GracefulKillDecision {
  GracefulKillAction action = GracefulKillAction::kNone;
  int signal = 0;           // of kSignal
  const char* reason = "";  // why, for the log; static
  std::optional<Clock::time_point>
      wake;                // ask again then, or when a process ended; none after kDone and kGiveUp
  GracefulKillState next;  // the state once the action is taken
};

// What to do now that `alive` processes are left. SIGTERM follows another first signal once the
// ranks have ended, at the latest shortly before SIGKILL. Once the ranks have ended, SIGTERM is
// repeated: a child that a shell with a trap has just forked loses it, because the trap's handler
// is still in place until exec. Pure.
GracefulKillDecision DecideGracefulKill(const GracefulKillState& state, Clock::time_point now,
                                        size_t alive, const GracefulKillOptions& options);

}  // namespace dslaunch
