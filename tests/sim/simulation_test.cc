// Tests 25,000 to 100,000 whole jobs with faults, in virtual time. Whatever happens, a rank has one
// owner in an attempt, the job ends, no process is left, and exit code 0 means success.
//   DSLAUNCH_TEST_SEED=N       runs only history N; with DSLAUNCH_SIM_TRACE=1 prints its events
//   DSLAUNCH_SIM_SECONDS=3600  runs as many histories as fit into an hour, different ones each time
// Without these variables the histories are the same each time, so a new failure is caused by the
// change under test.
#include "tests/sim/simulation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "base/os/usable_cores.h"
#include "tests/support/random_seed.h"

namespace dslaunch::sim {
namespace {

constexpr uint64_t kUsualHistories = 25'000;
constexpr uint64_t kAllHistories = 100'000;  // number of histories with DSLAUNCH_TEST_FULL
constexpr uint64_t kUsualDetachedHistories = 5'000;
constexpr uint64_t kUsualPerNodeHistories = 5'000;
constexpr uint64_t kUsualSeed = 1;
constexpr uint64_t kBugIsFoundWithin = 5'000;
constexpr uint64_t kReplayed = 100;
constexpr uint64_t kHalfCutHistories = 1'000;

bool IsSet(const char* variable) { return std::getenv(variable) != nullptr; }

uint64_t FirstSeed() {
  const bool search = IsSet("DSLAUNCH_SIM_SECONDS") || IsSet("DSLAUNCH_TEST_SEED");
  return search ? TestSeed() : kUsualSeed;
}

using RunOne = History (*)(uint64_t seed, PlantedBug bug, Tracing tracing);

// Runs the history once more with its trace and returns the message of the failure.
std::string Explain(RunOne run, uint64_t seed) {
  const History again = run(seed, PlantedBug::kNone, Tracing::kKept);
  return "DSLAUNCH_TEST_SEED=" + std::to_string(seed) + " repeats it, with DSLAUNCH_SIM_TRACE=1 " +
         "all of it; its last lines:\n" + again.trace;
}

struct Totals {
  uint64_t histories = 0;
  uint64_t succeeded = 0;
  uint64_t restarted = 0;
  uint64_t failed_over = 0;
  uint64_t elected = 0;
  uint64_t lost_front_end = 0;
  uint64_t joined_late = 0;
  int64_t virtual_ms = 0;

  void Add(const History& history) {
    ++histories;
    succeeded += history.succeeded;
    restarted += history.restarted;
    failed_over += history.failed_over;
    elected += history.elected;
    lost_front_end += history.lost_front_end;
    joined_late += history.joined_late;
    virtual_ms += history.virtual_ms;
  }
  double Share(uint64_t part) const {
    return static_cast<double>(part) / static_cast<double>(histories);
  }
};

void Print(const Totals& totals, uint64_t first_seed, double seconds) {
  const auto percent = [&](uint64_t part) { return 100 * totals.Share(part); };
  std::cout << std::fixed << std::setprecision(1) << totals.histories << " histories from seed "
            << first_seed << " in " << seconds << " s ("
            << static_cast<double>(totals.histories) / seconds << " a second), "
            << static_cast<double>(totals.virtual_ms) / 1'000 /
                   static_cast<double>(totals.histories)
            << " s of virtual time each: " << percent(totals.succeeded) << "% succeeded, "
            << percent(totals.restarted) << "% restarted, " << percent(totals.failed_over)
            << "% had another node decide, " << percent(totals.elected) << "% elected one, "
            << percent(totals.lost_front_end) << "% lost their front end, "
            << percent(totals.joined_late) << "% let a node join late\n";
}

// Runs `usual` histories, or as many as the environment requests, until one fails. Returns their
// totals; empty totals after a failure, or if DSLAUNCH_TEST_SEED selects one history.
Totals RunAll(RunOne run, uint64_t usual) {
  const uint64_t first_seed = FirstSeed();
  if (IsSet("DSLAUNCH_TEST_SEED")) {
    const Tracing tracing = IsSet("DSLAUNCH_SIM_TRACE") ? Tracing::kPrinted : Tracing::kKept;
    const History history = run(first_seed, PlantedBug::kNone, tracing);
    EXPECT_EQ(history.error, "") << history.trace;
    return {};
  }
  const char* const given = std::getenv("DSLAUNCH_SIM_SECONDS");
  const uint64_t histories =
      IsSet("DSLAUNCH_TEST_FULL") ? usual * (kAllHistories / kUsualHistories) : usual;
  const Clock::time_point start = Clock::now();
  const auto goes_on = [&](uint64_t seed) {
    if (given == nullptr) return seed - first_seed < histories;
    return Clock::now() - start < std::chrono::seconds(std::atoll(given));
  };
  // Each history runs in one thread.
  const auto threads = static_cast<uint64_t>(UsableCores());
  std::atomic<bool> has_failed = false;
  Mutex mutex;  // guards `totals`
  Totals totals;
  const auto run_every = [&](uint64_t first) {
    for (uint64_t seed = first; goes_on(seed) && !has_failed; seed += threads) {
      const History history = run(seed, PlantedBug::kNone, Tracing::kNone);
      EXPECT_EQ(history.error, "") << Explain(run, seed);
      if (!history.error.empty()) has_failed = true;
      const MutexLock lock(mutex);
      totals.Add(history);
    }
  };
  {
    std::vector<std::jthread> running;
    for (uint64_t i = 0; i < threads; ++i) running.emplace_back(run_every, first_seed + i);
  }
  if (has_failed) return {};
  Print(totals, first_seed, std::chrono::duration<double>(Clock::now() - start).count());
  return totals;
}

TEST(SimulationTest, EveryJobEndsWithTrueResult) {
  const Totals totals = RunAll(RunHistory, kUsualHistories);
  if (totals.histories == 0) return;
  // Both outcomes, restarts, failovers and lost front ends must occur, or the histories would not
  // exercise enough.
  EXPECT_GT(totals.Share(totals.succeeded), 0.1);
  EXPECT_LT(totals.Share(totals.succeeded), 0.9);
  EXPECT_GT(totals.Share(totals.restarted), 0.25);
  EXPECT_GT(totals.Share(totals.failed_over), 0.02);
  EXPECT_GT(totals.Share(totals.lost_front_end), 0.005);
}

TEST(SimulationTest, DetachedJobEndsAndNeverRunsInTwoHalves) {
  const Totals totals = RunAll(RunDetachedHistory, kUsualDetachedHistories);
  if (totals.histories == 0) return;
  EXPECT_GT(totals.Share(totals.succeeded), 0.1);
  EXPECT_GT(totals.Share(totals.elected), 0.1);
}

TEST(SimulationTest, PerNodeJobEndsWithAllCommandsAndNoProcessesLeft) {
  const Totals totals = RunAll(RunPerNodeHistory, kUsualPerNodeHistories);
  if (totals.histories == 0) return;
  EXPECT_GT(totals.Share(totals.succeeded), 0.1);
  EXPECT_GT(totals.Share(totals.restarted), 0.1);
  EXPECT_GT(totals.Share(totals.joined_late), 0.02);
}

// Expects every job to succeed on the nodes that can still reach each other, because nothing but
// the cut fails.
void ExpectSuccessOfAll(RunOne run) {
  const uint64_t first_seed = FirstSeed();
  const uint64_t histories = IsSet("DSLAUNCH_TEST_SEED") ? 1 : kHalfCutHistories;
  const Tracing tracing = IsSet("DSLAUNCH_SIM_TRACE") ? Tracing::kPrinted : Tracing::kKept;
  for (uint64_t seed = first_seed; seed < first_seed + histories; ++seed) {
    const History history = run(seed, PlantedBug::kNone, tracing);
    ASSERT_EQ(history.error, "") << "seed " << seed << "\n" << history.trace;
    ASSERT_TRUE(history.succeeded) << "seed " << seed << "\n" << history.trace;
    ASSERT_TRUE(history.restarted) << "seed " << seed << "\n" << history.trace;
  }
}

TEST(SimulationTest, SucceedsWithoutHostCutOffOneWay) { ExpectSuccessOfAll(RunHalfCutHistory); }

TEST(SimulationTest, DetachedJobSucceedsWithoutHostCutOffOneWay) {
  ExpectSuccessOfAll(RunDetachedHalfCutHistory);
}

// Expects that one of the first kBugIsFoundWithin histories fails with `bug`, and that the same
// history passes without it.
void ExpectFound(PlantedBug bug, const std::string& what, RunOne run = RunHistory) {
  const uint64_t first_seed = FirstSeed();
  for (uint64_t seed = first_seed; seed < first_seed + kBugIsFoundWithin; ++seed) {
    const History history = run(seed, bug, Tracing::kNone);
    if (history.error.empty()) continue;
    std::cout << what << ", history " << seed - first_seed + 1 << " (seed " << seed
              << ") fails: " << history.error << "\n";
    EXPECT_EQ(run(seed, PlantedBug::kNone, Tracing::kNone).error, "");
    return;
  }
  FAIL() << kBugIsFoundWithin << " histories from seed " << first_seed << " notice nothing";
}

// The planted bugs show that the simulator finds errors at all.
TEST(SimulationTest, FindsRemovedFence) { ExpectFound(PlantedBug::kNoFence, "without its fence"); }

TEST(SimulationTest, FindsSupervisorThatReportsReapingTooEarly) {
  ExpectFound(PlantedBug::kEarlyReaped, "with a supervisor that does not wait for what it ends");
}

TEST(SimulationTest, FindsAgentThatReportsDrainedTooEarly) {
  ExpectFound(PlantedBug::kEarlyDrained, "with an agent that does not wait for its supervisor");
}

TEST(SimulationTest, FindsFailoverThatIsTooEarly) {
  ExpectFound(PlantedBug::kFailsOverTooEarly, "with a failover that is too early");
}

TEST(SimulationTest, FindsCommandThatDoesNotAwaitItsAgent) {
  ExpectFound(PlantedBug::kEarlyCommandEnd, "with a command that does not wait for its agent",
              RunPerNodeHistory);
}

TEST(SimulationTest, FindsElectionByMinority) {
  ExpectFound(PlantedBug::kMinority, "where one node is a majority", RunDetachedHistory);
}

TEST(SimulationTest, FindsElectionBeforeLeasesAreOver) {
  ExpectFound(PlantedBug::kNoElectionFence, "with an election that is too early",
              RunDetachedHistory);
}

TEST(SimulationTest, SameSeedRepeatsHistory) {
  const uint64_t first_seed = FirstSeed();
  for (const RunOne run : {RunHistory, RunPerNodeHistory}) {
    for (uint64_t seed = first_seed; seed < first_seed + kReplayed; ++seed) {
      const History once = run(seed, PlantedBug::kNone, Tracing::kKept);
      const History again = run(seed, PlantedBug::kNone, Tracing::kKept);
      ASSERT_EQ(once.trace, again.trace) << "seed " << seed;
      ASSERT_EQ(once.virtual_ms, run(seed, PlantedBug::kNone, Tracing::kNone).virtual_ms)
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace dslaunch::sim
