// Decides how a set of processes is ended: by a first signal, SIGTERM, SIGKILL, and a bounded wait
// for the last processes. Makes decisions only; the caller finds the processes and sends the
// signals.
//
// The ranks are ended first, with all processes in their sessions. A process that a rank has put
// into a separate session, called a process apart, usually serves the ranks (PyTorch's
// torch_shm_manager, a Ray server). Such a process exits by itself after the ranks and removes its
// data for them (files in /dev/shm). It gets a signal only if it does not exit.
#pragma once

#include <csignal>
#include <cstddef>
#include <optional>
#include <span>

#include "base/deadline.h"
#include "base/os/process_tree.h"

namespace dslaunch {

struct GracefulKillOptions {
  milliseconds grace{10'000};    // time from the first signal to SIGKILL to the ranks
  milliseconds teardown{5'000};  // time from SIGKILL to the ranks to the time limit
};

enum class GracefulKillAction {
  kNone,  // wait until the next decision
  // Send `signal` to `targets`, then SIGCONT, so that stopped processes handle it.
  kSignal,
  // Send SIGKILL to `targets`, repeatedly, because a dying program may have forked.
  kKill,
  kDone,    // all processes have ended
  kGiveUp,  // some processes did not end in time
};

enum class KillTargets {
  kRanks,  // the ranks and all processes in their sessions
  kAll,
};

// Returns whether a process belongs to kRanks. Workers start in `session`, the supervisor's
// session. `groups` contains the workers' process groups. A worker that has created a session of
// its own leads it, so that session has the number of the worker's group. Pure.
bool IsOfRanks(const ProcessInfo& info, pid_t session, std::span<const pid_t> groups);

// The numbers of living processes.
struct LeftCount {
  size_t ranks = 0;  // number of processes in KillTargets::kRanks
  size_t apart = 0;  // number of processes apart
  // Whether a process apart serves others (serving_process.h). Set only if no ranks are left.
  bool serves = false;
};

// The progress of a graceful kill.
struct GracefulKillState {
  bool kill_now = false;  // whether to skip the grace period; may be set at any time
  int first_signal = SIGTERM;
  // Whether all remaining processes were started by ranks and have nothing to save.
  bool ranks_ended = false;
  std::optional<Clock::time_point> begun = {};
  std::optional<Clock::time_point> term_sent = {};   // time of the last SIGTERM to the ranks
  std::optional<Clock::time_point> kill_begun = {};  // time at which SIGKILL was due
  // Time since which only processes apart are left.
  std::optional<Clock::time_point> apart_since = {};
  // Time of the last SIGTERM to processes apart.
  std::optional<Clock::time_point> apart_term_sent = {};
  // Time of the first SIGKILL to processes apart.
  std::optional<Clock::time_point> apart_kill_sent = {};
};

struct GracefulKillDecision {
  GracefulKillAction action = GracefulKillAction::kNone;
  KillTargets targets = KillTargets::kAll;  // processes that get the signal of kSignal or kKill
  int signal = 0;                           // signal to send; set for kSignal
  const char* reason = "";                  // reason for the log; a static string
  // Time of the next decision, which is made earlier if a process ends; nullopt after kDone and
  // kGiveUp.
  std::optional<Clock::time_point> wake;
  GracefulKillState next;  // state after the action, for the next decision
};

// Returns the next action while `left` processes are left. Pure.
//
// Ranks: SIGTERM follows another first signal when the ranks have exited, or else shortly before
// SIGKILL. A child that a shell with a trap has just forked loses the signal, because the trap's
// handler is still installed until exec. So SIGTERM is repeated after the ranks have exited.
//
// Processes apart, after the last process of the ranks: SIGTERM is sent after half a second, or
// after three seconds if one of them serves others (torch_shm_manager exits after two), and again
// every second. SIGKILL is sent after the grace period, and then 0.7 or three seconds after SIGKILL
// to the ranks.
GracefulKillDecision DecideGracefulKill(const GracefulKillState& state, Clock::time_point now,
                                        const LeftCount& left, const GracefulKillOptions& options);

}  // namespace dslaunch
