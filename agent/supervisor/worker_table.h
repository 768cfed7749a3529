// Defines the states of a worker process as a table that maps state and event to the next state and
// the report.
#pragma once

#include <array>
#include <cstddef>

namespace dslaunch {

enum class WorkerState {
  kPending,  // the worker is being started
  kRunning,
  kStopped,  // the worker is stopped by a signal such as SIGSTOP or SIGTTIN
  kEnding,   // the graceful kill has begun
  kKilling,  // the graceful kill has sent SIGKILL
  kEnded,    // the worker was reaped, or was never started
};
inline constexpr size_t kWorkerStates = 6;

enum class WorkerEvent {
  kSpawned,
  kSpawnFailed,
  kExited,  // the worker exited, or a signal other than SIGKILL ended it
  kKilled,  // a SIGKILL from any sender ended the worker
  kStopped,
  kContinued,
  kGracefulKill,    // the graceful kill begins
  kSigkillFollows,  // the graceful kill is about to send SIGKILL
};
inline constexpr size_t kWorkerEvents = 8;

// The report to the agent about a transition of a worker.
enum class WorkerReport {
  kNone,
  kSpawned,
  kSpawnFailed,
  kExited,
  kExitedStopping,
  kStopped,
  kContinued
};

struct Transition {
  WorkerState next;
  WorkerReport report;

  constexpr bool operator==(const Transition&) const = default;
};

namespace worker_table_internal {

using S = WorkerState;
using R = WorkerReport;
using Row = std::array<Transition, kWorkerEvents>;

// The transition for each state and event. An event that cannot happen in a state neither changes
// the state nor causes a report.
inline constexpr std::array<Row, kWorkerStates> kTable = {{
    // Each row lists the transitions for kSpawned, kSpawnFailed, kExited, kKilled, kStopped,
    // kContinued, kGracefulKill and kSigkillFollows, in this order.
    /* kPending */
    {{{S::kRunning, R::kSpawned},
      {S::kEnded, R::kSpawnFailed},
      {S::kPending, R::kNone},
      {S::kPending, R::kNone},
      {S::kPending, R::kNone},
      {S::kPending, R::kNone},
      {S::kEnding, R::kNone},
      {S::kKilling, R::kNone}}},
    /* kRunning */
    {{{S::kRunning, R::kNone},
      {S::kRunning, R::kNone},
      {S::kEnded, R::kExited},
      {S::kEnded, R::kExited},
      {S::kStopped, R::kStopped},
      {S::kRunning, R::kNone},
      {S::kEnding, R::kNone},
      {S::kKilling, R::kNone}}},
    /* kStopped */
    {{{S::kStopped, R::kNone},
      {S::kStopped, R::kNone},
      {S::kEnded, R::kExited},
      {S::kEnded, R::kExited},
      {S::kStopped, R::kNone},
      {S::kRunning, R::kContinued},
      {S::kEnding, R::kNone},
      {S::kKilling, R::kNone}}},
    /* kEnding: the graceful kill itself continues stopped processes, so neither is reported; a
       SIGKILL came from another sender and may be the cause of the other failures; a worker that
       was being started may still reach its program */
    {{{S::kEnding, R::kSpawned},
      {S::kEnded, R::kSpawnFailed},
      {S::kEnded, R::kExitedStopping},
      {S::kEnded, R::kExited},
      {S::kEnding, R::kNone},
      {S::kEnding, R::kNone},
      {S::kEnding, R::kNone},
      {S::kKilling, R::kNone}}},
    /* kKilling */
    {{{S::kKilling, R::kSpawned},
      {S::kEnded, R::kSpawnFailed},
      {S::kEnded, R::kExitedStopping},
      {S::kEnded, R::kExitedStopping},
      {S::kKilling, R::kNone},
      {S::kKilling, R::kNone},
      {S::kKilling, R::kNone},
      {S::kKilling, R::kNone}}},
    /* kEnded */
    {{{S::kEnded, R::kNone},
      {S::kEnded, R::kNone},
      {S::kEnded, R::kNone},
      {S::kEnded, R::kNone},
      {S::kEnded, R::kNone},
      {S::kEnded, R::kNone},
      {S::kEnded, R::kNone},
      {S::kEnded, R::kNone}}},
}};
static_assert(static_cast<size_t>(WorkerState::kEnded) + 1 == kWorkerStates);
static_assert(static_cast<size_t>(WorkerEvent::kSigkillFollows) + 1 == kWorkerEvents);

}  // namespace worker_table_internal

constexpr Transition NextTransition(WorkerState state, WorkerEvent event) {
  return worker_table_internal::kTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

}  // namespace dslaunch
