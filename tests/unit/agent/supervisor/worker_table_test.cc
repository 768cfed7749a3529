#include "agent/supervisor/worker_table.h"

#include <gtest/gtest.h>

namespace dslaunch::worker_table_test {
namespace {

using E = WorkerEvent;
using R = WorkerReport;
using S = WorkerState;

static_assert(NextTransition(S::kPending, E::kSpawned) == Transition{S::kRunning, R::kSpawned});

// Applies the events from kPending on. Returns the last state and all reports.
std::pair<S, std::vector<R>> Follow(const std::vector<E>& events) {
  S state = S::kPending;
  std::vector<R> told;
  for (const E event : events) {
    const Transition transition = NextTransition(state, event);
    state = transition.next;
    if (transition.report != R::kNone) told.push_back(transition.report);
  }
  return {state, told};
}

using Record = std::vector<R>;

TEST(WorkerTable, ReportsSpawnAndExit) {
  EXPECT_EQ(Follow({E::kSpawned, E::kExited}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kExited})));
}

TEST(WorkerTable, ReportsStopAndContinueOnceEach) {
  EXPECT_EQ(Follow({E::kSpawned, E::kStopped, E::kStopped, E::kContinued, E::kContinued}),
            std::pair(S::kRunning, Record({R::kSpawned, R::kStopped, R::kContinued})));
}

TEST(WorkerTable, StoppedWorkerCanExit) {
  EXPECT_EQ(Follow({E::kSpawned, E::kStopped, E::kExited}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kStopped, R::kExited})));
}

TEST(WorkerTable, ReportsExitDuringGracefulKillAsStopping) {
  EXPECT_EQ(Follow({E::kSpawned, E::kGracefulKill, E::kStopped, E::kContinued, E::kGracefulKill,
                    E::kExited}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kExitedStopping})));
}

TEST(WorkerTable, SigkillIsStoppingOnlyAfterGracefulKillSentIt) {
  EXPECT_EQ(Follow({E::kSpawned, E::kGracefulKill, E::kKilled}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kExited})));
  EXPECT_EQ(Follow({E::kSpawned, E::kGracefulKill, E::kSigkillFollows, E::kKilled}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kExitedStopping})));
  EXPECT_EQ(Follow({E::kSpawned, E::kSigkillFollows, E::kGracefulKill, E::kKilled}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kExitedStopping})));
}

TEST(WorkerTable, FailedStartIsTheEnd) {
  EXPECT_EQ(Follow({E::kSpawnFailed, E::kExited}), std::pair(S::kEnded, Record({R::kSpawnFailed})));
}

TEST(WorkerTable, GracefulKillAppliesToWorkerStillStarting) {
  EXPECT_EQ(Follow({E::kGracefulKill, E::kSpawned, E::kExited}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kExitedStopping})));
  EXPECT_EQ(Follow({E::kGracefulKill, E::kSigkillFollows, E::kSpawned, E::kKilled}),
            std::pair(S::kEnded, Record({R::kSpawned, R::kExitedStopping})));
  EXPECT_EQ(Follow({E::kGracefulKill, E::kSpawnFailed}),
            std::pair(S::kEnded, Record({R::kSpawnFailed})));
}

TEST(WorkerTable, EndedStateIsFinal) {
  for (size_t event = 0; event < kWorkerEvents; ++event) {
    EXPECT_EQ(NextTransition(S::kEnded, static_cast<E>(event)), (Transition{S::kEnded, R::kNone}));
  }
}

TEST(WorkerTable, OnlyAnExitEndsARunningWorker) {
  for (size_t state = 1; state < kWorkerStates; ++state) {
    for (size_t event = 0; event < kWorkerEvents; ++event) {
      const Transition transition = NextTransition(static_cast<S>(state), static_cast<E>(event));
      EXPECT_NE(transition.next, S::kPending);
      if (transition.next == S::kEnded && static_cast<S>(state) != S::kEnded) {
        // A worker that is being stopped may not have started its program yet.
        EXPECT_TRUE(static_cast<E>(event) == E::kExited || static_cast<E>(event) == E::kKilled ||
                    transition.report == R::kSpawnFailed);
      }
    }
  }
}

}  // namespace
}  // namespace dslaunch::worker_table_test
