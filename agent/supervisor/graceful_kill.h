// How a set of processes is ended: a first signal, SIGTERM, SIGKILL, a bounded wait for the last to
// go. The decision only; who sends the signals finds out whom to send them to.
//
// The ranks go first, with all that is in a session of theirs. A process that a rank has put into a
// session of its own mostly serves the ranks (PyTorch's torch_shm_manager, a Ray server): it ends
// by itself once they are gone, and removes what it keeps for them (files in /dev/shm). It gets a
// signal only where it does not.
#pragma once

#include <csignal>
#include <cstddef>
#include <optional>
#include <span>

#include "base/deadline.h"
#include "base/os/process_tree.h"

namespace dslaunch {

struct GracefulKillOptions {
  milliseconds grace{10'000};    // between the first signal and SIGKILL to the ranks
  milliseconds teardown{5'000};  // between that SIGKILL and giving up
};

enum class GracefulKillAction {
  kNone,    // wait
  kSignal,  // `signal` to `targets`, then SIGCONT so that the stopped can heed it
  kKill,    // SIGKILL to `targets`; repeated, because a dying program may have forked
  kDone,    // nothing is left
  kGiveUp,  // something is left and did not end in time
};

enum class KillTargets {
  kRanks,  // the ranks, and what is in a session of theirs
  kAll,
};

// Whether a process is one of kRanks. Workers start in `session`, the supervisor's; one that has
// made its own names it by its pid, which is in `groups`, the numbers of the workers' groups. Pure.
bool IsOfRanks(const ProcessInfo& info, pid_t session, std::span<const pid_t> groups);

// Living processes.
struct LeftCount {
  size_t ranks = 0;     // of KillTargets::kRanks
  size_t apart = 0;     // in other sessions
  bool serves = false;  // one of those apart does (serving_process.h); only where no ranks are left
};

// Where a graceful kill stands.
struct GracefulKillState {
  bool kill_now = false;  // no grace; may be set at any time
  int first_signal = SIGTERM;
  bool ranks_ended = false;  // what is left was started by ranks and saves nothing
  std::optional<Clock::time_point> begun = {};
  std::optional<Clock::time_point> term_sent = {};    // when SIGTERM last went to the ranks
  std::optional<Clock::time_point> kill_begun = {};   // when SIGKILL was due
  std::optional<Clock::time_point> apart_since = {};  // since when only processes apart are left
  std::optional<Clock::time_point> apart_term_sent = {};  // when SIGTERM last went to those
  std::optional<Clock::time_point> apart_kill_sent = {};  // when SIGKILL first went to those
};

struct GracefulKillDecision {
  GracefulKillAction action = GracefulKillAction::kNone;
  KillTargets targets = KillTargets::kAll;  // of kSignal and kKill
  int signal = 0;                           // of kSignal
  const char* reason = "";                  // why, for the log; static
  std::optional<Clock::time_point>
      wake;                // ask again then, or when a process ended; none after kDone and kGiveUp
  GracefulKillState next;  // the state once the action is taken
};

// What to do now that `left` processes are left. Pure.
//
// The ranks: SIGTERM follows another first signal once the ranks have ended, at the latest shortly
// before SIGKILL. Once the ranks have ended, SIGTERM is repeated: a child that a shell with a trap
// has just forked loses it, because the trap's handler is still in place until exec.
//
// The processes apart, once the last of the ranks' processes is gone: SIGTERM after half a second,
// or after three where one of them serves (torch_shm_manager ends after two), and again every
// second; SIGKILL when the grace is over, or 0.7 or three seconds after SIGKILL to the ranks.
GracefulKillDecision DecideGracefulKill(const GracefulKillState& state, Clock::time_point now,
                                        const LeftCount& left, const GracefulKillOptions& options);

}  // namespace dslaunch
