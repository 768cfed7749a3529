// Runs healthy jobs with the usual limits (setup=1800,600) in virtual time. In each job, ranks are
// silent for a legitimate reason, for as long as occurs in practice. No job may be reported as
// hanging.
//   DSLAUNCH_TEST_SEED=N  runs only job N of each kind
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "agent/core/rank_stillness.h"
#include "rendezvous/culprit.h"
#include "rendezvous/standstill.h"
#include "tests/support/random_seed.h"

namespace dslaunch::healthy_jobs_simulation_test {
namespace {

using std::chrono::seconds;

constexpr milliseconds kSetup = seconds(1'800);
constexpr milliseconds kHang = seconds(600);
constexpr int kIntervalS = 50;
constexpr int kHoursS = 2 * 3'600;
constexpr uint64_t kJobsOfEachKind = 15;  // 105 jobs of all kinds

// Activity of a rank during one second.
enum class Act { kWaits, kSleeps, kComputes, kReads, kWrites, kExchanges, kCompiles, kPrints };

// Returns the stacks of a rank that does `act`: in a collective operation, or in the program's own
// code.
pb::RankStacks StacksOf(Act act) {
  pb::RankStacks stacks;
  pb::ProcessStacks& process = *stacks.add_processes();
  process.set_pid(1);
  process.set_command("python3");
  process.set_python("3.11");
  pb::ThreadStack& thread = *process.add_threads();
  thread.set_tid(1);
  thread.set_state(act == Act::kComputes ? "R" : "S");
  thread.set_call(act == Act::kComputes ? "" : "epoll_wait");
  pb::StackFrame& frame = *thread.add_frames();
  const bool waits = act == Act::kWaits || act == Act::kExchanges;
  frame.set_function(waits ? "all_reduce" : "serve");
  frame.set_file(waits ? "/v/torch/distributed/distributed_c10d.py" : "/u/serve.py");
  frame.set_line(1);
  return stacks;
}

// A kind of job: its name, its number of ranks, and the activity of each rank in each second.
struct Kind {
  const char* name;
  uint32_t ranks;
  Act (*act)(uint32_t rank, int second);
};

// Returns `act` for rank 0 and kWaits for all other ranks.
constexpr Act OnlyRank0(uint32_t rank, Act act) { return rank == 0 ? act : Act::kWaits; }

constexpr Kind kKinds[] = {
    {"imports of 60 s", 4,
     [](uint32_t, int second) { return second < 60 ? Act::kReads : Act::kExchanges; }},
    {"compilation in children", 4,
     [](uint32_t rank, int second) {
       return second < 1'500 ? OnlyRank0(rank, Act::kCompiles) : Act::kExchanges;
     }},
    {"evaluation of 5 minutes on rank 0", 4,
     [](uint32_t rank, int second) {
       return second % 1'000 < 700 ? Act::kExchanges : OnlyRank0(rank, Act::kComputes);
     }},
    {"saves of 3 minutes", 4,
     [](uint32_t rank, int second) {
       return second % 600 < 420 ? Act::kExchanges : OnlyRank0(rank, Act::kWrites);
     }},
    {"one rank", 1, [](uint32_t, int) { return Act::kSleeps; }},
    {"idle service", 2,
     [](uint32_t, int second) { return second < 30 ? Act::kReads : Act::kSleeps; }},
    {"slow output", 2,
     [](uint32_t rank, int second) {
       return second % 400 == 0 ? OnlyRank0(rank, Act::kPrints) : Act::kWaits;
     }},
};

void Do(Act act, RankSigns& signs) {
  switch (act) {
    case Act::kComputes:
      signs.own_cpu_ms += 1'000;
      return;
    case Act::kReads:
      signs.file_bytes += 100'000;
      return;
    case Act::kWrites:
      signs.file_bytes += 1'000'000;
      return;
    case Act::kExchanges:
      signs.peer_bytes += 1'000;
      return;
    case Act::kCompiles:
      signs.child_cpu_ms += 1'000;
      return;
    case Act::kPrints:
      signs.output_bytes += 80;
      return;
    case Act::kWaits:
    case Act::kSleeps:
      signs.own_cpu_ms += 2;
      return;
  }
}

// Returns the report about a job; empty if no hang was reported.
std::string ReportOf(const Kind& kind, uint64_t seed) {
  struct Rank {
    RankSigns signs;
    RankStillness stillness;
    int looks_at = 0;
  };
  Random random(seed);
  std::vector<Rank> ranks(kind.ranks);
  StandstillWatch watch;
  const StandstillOptions options = {
      .setup = kSetup, .hang = kHang, .freshness = milliseconds(4'000), .world_size = kind.ranks};
  const int shift = static_cast<int>(random.Between(0, 100));
  for (int second = 0; second < kHoursS; ++second) {
    const Clock::time_point now = Clock::time_point() + seconds(second);
    std::vector<pb::RankStacks> stacks;
    for (uint32_t i = 0; i < ranks.size(); ++i) {
      const Act act = kind.act(i, second + shift);
      Do(act, ranks[i].signs);
      stacks.push_back(StacksOf(act));
      if (second >= ranks[i].looks_at) {
        ranks[i].stillness.OnLook(ranks[i].signs, seconds(kIntervalS), now);
        ranks[i].looks_at =
            second + static_cast<int>(random.Between(kIntervalS * 7 / 10, kIntervalS * 13 / 10));
      }
      if (const auto report = ranks[i].stillness.Report(i)) watch.OnReport(*report, now);
    }
    const StandstillDecision decision = watch.Check(now, options);
    if (decision.kind == StandstillDecision::Kind::kNone) continue;
    std::vector<RankEvidence> evidence(ranks.size());
    for (uint32_t i = 0; i < ranks.size(); ++i) {
      const RankLife& life = *watch.Find(i);
      evidence[i].rank = i;
      evidence[i].stacks = &stacks[i];
      evidence[i].uses_cpu = life.still < decision.limit - StandstillLead(decision.limit);
      evidence[i].computes_long = life.only_cpu >= kComputeFactor * decision.limit;
    }
    const Culprit culprit = Judge(evidence);
    if (culprit.rule != Culprit::Rule::kNoneWaits)
      return decision.reason + ": " + culprit.summary + " at " + std::to_string(second) + " s";
  }
  return "";
}

TEST(HealthyJobsSimulationTest, ReportsNone) {
  const bool one = std::getenv("DSLAUNCH_TEST_SEED") != nullptr;
  const uint64_t first = one ? TestSeed() : 1;
  for (const Kind& kind : kKinds) {
    for (uint64_t seed = first; seed < first + (one ? 1 : kJobsOfEachKind); ++seed)
      ASSERT_EQ(ReportOf(kind, seed), "") << kind.name << ", DSLAUNCH_TEST_SEED=" << seed;
  }
}

TEST(HealthyJobsSimulationTest, ReportsSleepingRankBesideThem) {
  const Kind hang = {"hang", 4, [](uint32_t rank, int second) {
                       if (second < 600) return Act::kExchanges;
                       return rank == 2 ? Act::kSleeps : Act::kWaits;
                     }};
  const std::string text = ReportOf(hang, 1);
  EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
}

}  // namespace
}  // namespace dslaunch::healthy_jobs_simulation_test
