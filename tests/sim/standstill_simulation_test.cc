// Tests the path from signs of life of ranks to the decision that a job is hanging, in virtual
// time. Simulates lost or late looks, lost heartbeats, ranks that end, and suspended machines.
//   DSLAUNCH_TEST_SEED=N  runs only history N
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/rank_stillness.h"
#include "rendezvous/standstill.h"
#include "tests/support/random_seed.h"

namespace dslaunch::standstill_simulation_test {
namespace {

constexpr uint64_t kUsualHistories = 5'000;
constexpr uint64_t kAllHistories = 100'000;  // number of histories with DSLAUNCH_TEST_FULL
constexpr uint64_t kUsualSeed = 1;
constexpr uint64_t kBugIsFoundWithin = 2'000;

constexpr int kLimitS = 60;
constexpr int kIntervalS = kLimitS / 12;
constexpr int kFreshS = 4;
constexpr int kHistoryS = 600;
constexpr int kNoticedWithinS = 60;  // seconds after the limit, however many looks are lost

enum class Bug {
  kNone,
  kLostLookIsStill,  // a failed look counts as a look without a sign of life
  kJumpCounts,       // the whole gap between two looks counts, however long
  kEndIsForgotten,   // the end of a rank between two looks is not reported
};

// The true state of a rank, and its agent's view of it.
struct Rank {
  RankSigns signs;
  int acts_at = 0;          // time of its next sign of life
  int acted_at = 0;         // time of its last sign of life, counted while the machine was awake
  int ends_at = kHistoryS;  // time at which it exits with 0
  int looks_at = 0;
  bool ended = false;
  std::optional<RankSigns> seen;
  RankStillness stillness;
};

class History {
 public:
  History(uint64_t seed, Bug bug) : random_(seed), bug_(bug) {
    ranks_.resize(static_cast<size_t>(random_.Between(2, 6)));
    if (random_.OneIn(2)) hangs_at_ = static_cast<int>(random_.Between(20, kHistoryS / 2));
    if (random_.OneIn(4)) suspended_at_ = static_cast<int>(random_.Between(20, kHistoryS / 2));
    for (Rank& rank : ranks_) {
      rank.signs.peer_bytes = 1;
      if (random_.OneIn(6)) rank.ends_at = static_cast<int>(random_.Between(20, kHistoryS / 3));
    }
    lossy_ = random_.OneIn(2);
  }

  // Runs the history. Returns a message for the first error; empty if there was none.
  std::string Run() {
    for (awake_ = 0; awake_ < kHistoryS; ++awake_) {
      now_ += std::chrono::seconds(awake_ == suspended_at_ ? 600 : 1);
      if (awake_ == suspended_at_) watch_.OnStall(now_);
      for (size_t i = 0; i < ranks_.size(); ++i) Step(ranks_[i], static_cast<uint32_t>(i));
      const std::string error = Judge();
      if (!error.empty()) return error + " at " + std::to_string(awake_) + " s";
    }
    return "";
  }

 private:
  void Step(Rank& rank, uint32_t number) {
    if (awake_ >= rank.ends_at && !std::exchange(rank.ended, true) && bug_ != Bug::kEndIsForgotten)
      rank.stillness.OnEnded();
    if (!rank.ended && awake_ >= rank.acts_at && awake_ < hangs_at_) {
      rank.signs.output_bytes += 1;
      rank.acted_at = awake_;
      // Some ranks wait for other ranks for longer than the limit.
      rank.acts_at = awake_ + static_cast<int>(random_.Between(1, random_.OneIn(3) ? 150 : 30));
    }
    if (awake_ >= rank.looks_at) Look(rank);
    if (lossy_ && random_.OneIn(10)) return;  // a late heartbeat carries no report in this second
    if (const auto report = rank.stillness.Report(number)) watch_.OnReport(*report, now_);
  }

  void Look(Rank& rank) {
    rank.looks_at = awake_ + static_cast<int>(random_.Between(kIntervalS - 1, kIntervalS + 1));
    if (rank.ended && bug_ != Bug::kEndIsForgotten) return;
    const bool is_lost = rank.ended || (lossy_ && random_.OneIn(8));
    std::optional<RankSigns> signs;
    if (!is_lost) signs = rank.signs;
    if (is_lost && bug_ == Bug::kLostLookIsStill) signs = rank.seen;
    if (!is_lost) rank.seen = rank.signs;
    const int interval_s = bug_ == Bug::kJumpCounts ? 3'600 : kIntervalS;
    rank.stillness.OnLook(signs, std::chrono::seconds(interval_s), now_);
  }

  std::string Judge() {
    const bool any_runs = std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.ended; });
    StandstillOptions options;
    options.setup = options.hang = milliseconds(kLimitS * 1'000);
    options.freshness = milliseconds(kFreshS * 1'000);
    options.world_size = static_cast<uint32_t>(ranks_.size());
    const bool still = watch_.Check(now_, options).kind == StandstillDecision::Kind::kStandstill;
    int last_act = 0;
    for (const Rank& rank : ranks_) {
      const int moved_at = rank.ended ? rank.ends_at : rank.acted_at;
      // Acts after the newest look, and ends after the newest heartbeat, cannot have been reported
      // yet.
      const int unseen_s = rank.ended ? kFreshS : 2 * kIntervalS;
      const bool is_unseen = moved_at > 0 && awake_ - moved_at <= unseen_s;
      if (!rank.ended) last_act = std::max(last_act, rank.acted_at);
      // The gap of a suspension counts as two intervals at most.
      const int least_s = kLimitS - (suspended_at_ >= 0 ? 2 * kIntervalS : 0);
      if (still && !is_unseen && awake_ - moved_at < least_s)
        return "a job is reported of which a rank acted at " + std::to_string(moved_at) + " s";
    }
    // A rank's end also counts as a sign of life.
    for (const Rank& rank : ranks_) {
      if (!rank.ended) continue;
      // The time between an end and a later suspension does not count.
      const bool resumed = suspended_at_ >= 0 && awake_ >= suspended_at_;
      last_act = std::max({last_act, rank.ends_at, resumed ? suspended_at_ : 0});
    }
    noticed_ = still || (noticed_ && awake_ > last_act + kLimitS);
    if (any_runs && awake_ > last_act + kLimitS + kNoticedWithinS && awake_ > hangs_at_ &&
        !noticed_)
      return "a hang is not noticed";
    return "";
  }

  Random random_;
  const Bug bug_;
  std::vector<Rank> ranks_;
  StandstillWatch watch_;
  Clock::time_point now_;
  int awake_ = 0;  // seconds in which the machine was not suspended
  int hangs_at_ = kHistoryS;
  int suspended_at_ = -1;
  bool lossy_ = false;
  bool noticed_ = false;
};

TEST(StandstillSimulationTest, ReportsHangsOnly) {
  const bool one = std::getenv("DSLAUNCH_TEST_SEED") != nullptr;
  const uint64_t first = one ? TestSeed() : kUsualSeed;
  const bool all = std::getenv("DSLAUNCH_TEST_FULL") != nullptr;
  const uint64_t histories = one ? 1 : all ? kAllHistories : kUsualHistories;
  for (uint64_t seed = first; seed < first + histories; ++seed)
    ASSERT_EQ(History(seed, Bug::kNone).Run(), "")
        << "DSLAUNCH_TEST_SEED=" << seed << " repeats it";
}

void ExpectFound(Bug bug, const std::string& what) {
  for (uint64_t seed = kUsualSeed; seed < kUsualSeed + kBugIsFoundWithin; ++seed) {
    const std::string error = History(seed, bug).Run();
    if (error.empty()) continue;
    EXPECT_NE(error.find(what), std::string::npos) << error;
    return;
  }
  FAIL() << kBugIsFoundWithin << " histories notice nothing";
}

TEST(StandstillSimulationTest, FindsLostLookThatCountsAsStill) {
  ExpectFound(Bug::kLostLookIsStill, "a job is reported");
}

TEST(StandstillSimulationTest, FindsTimeOfSuspendedMachine) {
  ExpectFound(Bug::kJumpCounts, "a job is reported");
}

TEST(StandstillSimulationTest, FindsForgottenEndOfRank) {
  ExpectFound(Bug::kEndIsForgotten, "a hang is not noticed");
}

}  // namespace
}  // namespace dslaunch::standstill_simulation_test
