#include "trainer/comm/collective_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace dslaunch::collective_progress_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

CollectiveProgress Computes(std::map<std::string, int64_t> begun = {}) {
  return {.awaited = {}, .begun = std::move(begun)};
}

// Returns the progress of a rank that has begun exchange `number` of `what` and waits for it.
// `begun`: numbers of the exchanges begun earlier, by name.
CollectiveProgress Waits(const std::string& what, int64_t number,
                         std::map<std::string, int64_t> begun = {}) {
  begun[what] = number;
  return {.awaited = Exchange{what, number}, .begun = std::move(begun)};
}

TEST(CollectiveProgressTest, ProgressSurvivesFormatAndParse) {
  for (const CollectiveProgress& place :
       {CollectiveProgress{}, Computes({{"a \"name\"", 3}}),
        Waits("the parameters of h.0.mlp", 7, {{"b", 1}}),
        CollectiveProgress{.awaited = {}, .begun = {}, .knows = true}}) {
    EXPECT_EQ(ParseProgress(FormatProgress(place)), place) << FormatProgress(place);
  }
}

TEST(CollectiveProgressTest, FindsRanksThatWaitForEachOther) {
  EXPECT_THAT(FindStuck({Waits("fc2", 1), Waits("an all-reduce", 4)}), ElementsAre(0, 1));
  // Rank 0 has begun the same operation once more than rank 1.
  EXPECT_THAT(FindStuck({Waits("fc1", 3), Waits("the end", 1, {{"fc1", 2}})}), ElementsAre(0, 1));
  EXPECT_THAT(FindStuck({Waits("a", 1), Waits("b", 1, {{"a", 1}}), Waits("c", 1, {{"b", 1}})}),
              ElementsAre(0, 1, 2));
}

TEST(CollectiveProgressTest, IgnoresRanksThatWaitForComputingRank) {
  EXPECT_THAT(FindStuck({}), IsEmpty());
  EXPECT_THAT(FindStuck({Computes(), Computes()}), IsEmpty());
  EXPECT_THAT(FindStuck({Waits("fc2", 1), Computes()}), IsEmpty());
  // Rank 1 continues once rank 2 begins b. Rank 1 then begins a, for which rank 0 waits.
  EXPECT_THAT(FindStuck({Waits("a", 1, {{"b", 1}}), Waits("b", 1), Computes()}), IsEmpty());
}

TEST(CollectiveProgressTest, IgnoresWaitsForExchangesAllHaveBegun) {
  EXPECT_THAT(FindStuck({Waits("fc2", 5), Waits("fc2", 5)}), IsEmpty());
  // Rank 1 is ahead by prefetching: it has already begun the exchange for which rank 0 waits.
  EXPECT_THAT(FindStuck({Waits("a", 1), Waits("b", 1, {{"a", 1}})}), IsEmpty());
}

TEST(CollectiveProgressTest, FindsCirclesOverSeveralGroups) {
  const auto waits = [](const std::string& what, std::vector<size_t> members) {
    return CollectiveProgress{.awaited = Exchange{what, 1, std::move(members)},
                              .begun = {{what, 1}}};
  };
  const CollectiveProgress row0 = waits("row 0", {0, 1}), row1 = waits("row 1", {2, 3}),
                           column0 = waits("column 0", {0, 2}), column1 = waits("column 1", {1, 3});
  EXPECT_EQ(ParseProgress(FormatProgress(row1)), row1);
  EXPECT_THAT(FindStuck({row0, column1, column0, row1}), ElementsAre(0, 1, 2, 3));
  // If all ranks of a group have begun the exchange, or one rank of the circle still computes, no
  // rank is stuck.
  EXPECT_THAT(FindStuck({row0, row0, row1, row1}), IsEmpty());
  EXPECT_THAT(FindStuck({row0, column1, column0, Computes()}), IsEmpty());
  EXPECT_THAT(DescribeLate({row0, Computes(), Computes(), Computes()}, 0, std::chrono::seconds(9)),
              HasSubstr("which rank 1 has not started"));
}

TEST(CollectiveProgressTest, FindsStuckRanksBesideComputingRank) {
  const std::vector<CollectiveProgress> places = {
      Waits("fc2", 1), Computes({{"fc2", 1}, {"fc1", 1}}), Waits("fc1", 1)};
  EXPECT_THAT(FindStuck(places), ElementsAre(0, 2));
}

TEST(CollectiveProgressTest, FindsOnlyRanksThatNeverProceed) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](size_t n) { return random() % n; };
  // Draws programs of the ranks. A program is a list of names; for each name the rank begins an
  // exchange and waits for it. An exchange is complete when all ranks have begun it.
  for (int round = 0; round < 2000; ++round) {
    const size_t ranks = 2 + draw(3);
    std::vector<std::vector<std::string>> programs(ranks, std::vector<std::string>(6));
    for (auto& name : programs[0]) name = std::string(1, static_cast<char>('a' + draw(3)));
    for (size_t i = 1; i < ranks; ++i) {
      programs[i] = programs[0];
      if (draw(2) == 0) programs[i][draw(6)] = "a";
      if (draw(4) == 0) programs[i].pop_back();
    }
    std::vector<CollectiveProgress> places(ranks);
    std::vector<size_t> done(ranks);
    const auto step = [&](size_t rank) {  // returns whether the rank could proceed
      CollectiveProgress& place = places[rank];
      if (!place.awaited) {
        if (done[rank] == programs[rank].size()) return false;
        const std::string& what = programs[rank][done[rank]];
        place.awaited = Exchange{what, ++place.begun[what]};
        return true;
      }
      for (CollectiveProgress& other : places) {
        if (other.begun[place.awaited->what] < place.awaited->number) return false;
      }
      place.awaited.reset();
      ++done[rank];
      return true;
    };
    // Records the progress of the ranks at different times.
    std::vector<CollectiveProgress> seen(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t steps = draw(30); steps > 0; --steps) step(draw(ranks));
      seen[rank] = places[rank];
    }
    const std::vector<size_t> found = FindStuck(seen);
    const std::vector<CollectiveProgress> before = seen;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks; ++rank) moved |= step(rank);
    }
    for (const size_t rank : found) {
      ASSERT_EQ(places[rank].awaited, before[rank].awaited) << "round " << round;
    }
    // At the end, a rank that still waits is either stuck, or waits for a rank that has ended.
    std::vector<size_t> waiting;
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (!places[rank].awaited) places[rank] = Waits("the end", 1, places[rank].begun);
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (places[rank].awaited->what != "the end") waiting.push_back(rank);
    }
    if (!waiting.empty()) {
      for (const size_t rank : waiting) {
        ASSERT_THAT(FindStuck(places), testing::Contains(rank)) << "round " << round;
      }
    } else {
      ASSERT_THAT(FindStuck(places), IsEmpty()) << "round " << round;
    }
  }
}

TEST(CollectiveProgressTest, DescribesWaitOfEachRank) {
  EXPECT_THAT(DescribeStuck({Waits("the parameters of fc2", 1), Waits("an all-reduce", 4),
                             Waits("the parameters of fc2", 1), Computes()}),
              HasSubstr("ranks 0, 2: waiting for the parameters of fc2; rank 1: waiting for an "
                        "all-reduce; rank 3: still computing"));
}

TEST(CollectiveProgressTest, NamesRankThatHasNotStarted) {
  using std::chrono::seconds;
  const std::string one =
      DescribeLate({Waits("the parameters of fc2", 2), Waits("the parameters of fc2", 2),
                    Computes({{"the parameters of fc2", 1}})},
                   1, seconds(570));
  EXPECT_THAT(one,
              HasSubstr("waited 570 s for the parameters of fc2, which rank 2 has not started"));
  EXPECT_THAT(DescribeLate({Waits("a", 1), Computes()}, 0, seconds(1), {2, 5}),
              HasSubstr("which rank 5 has not started"));
  const std::string none = DescribeLate({Waits("a", 2), Computes({{"a", 3}})}, 0, seconds(570));
  EXPECT_THAT(none, HasSubstr("network"));
  EXPECT_THAT(none, Not(HasSubstr("not started")));
}

}  // namespace
}  // namespace dslaunch::collective_progress_test
