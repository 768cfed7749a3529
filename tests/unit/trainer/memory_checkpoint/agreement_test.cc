#include "trainer/memory_checkpoint/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace dslaunch {
namespace {

constexpr CopyId kOld = {20, 1}, kNew = {40, 1};

CopyOffer Offer(std::vector<CopyId> copies, std::optional<CopyId> verified = {}) {
  return {std::move(copies), verified};
}

TEST(ChooseCopyTest, ChoosesNewestCopyOfAllRanks) {
  const CopyChoice choice =
      ChooseCopy({Offer({kNew, kOld}), Offer({kOld, kNew}), Offer({kOld, {60, 1}})});
  EXPECT_EQ(choice.copy, kOld);
  EXPECT_FALSE(choice.is_final);
}

TEST(ChooseCopyTest, IsFinalOnceAllRanksVerified) {
  EXPECT_FALSE(ChooseCopy({Offer({kNew}, kNew), Offer({kNew})}).is_final);
  EXPECT_FALSE(ChooseCopy({Offer({kNew, kOld}, kNew), Offer({kOld})}).is_final);
  EXPECT_TRUE(ChooseCopy({Offer({kNew}, kNew), Offer({kNew}, kNew)}).is_final);
}

TEST(ChooseCopyTest, DoesNotMixAttempts) {
  const CopyChoice choice = ChooseCopy({Offer({{40, 2}, {20, 1}}), Offer({{40, 1}, {20, 2}})});
  EXPECT_EQ(choice.copy, std::nullopt);
  EXPECT_TRUE(choice.is_final);
  EXPECT_EQ(choice.why_none,
            "no step is common to all ranks: rank 0 has 40 (attempt 2) and 20 (attempt 1), rank 1 "
            "has 40 (attempt 1) and 20 (attempt 2)");
}

TEST(ChooseCopyTest, NamesFirstRankWithoutCopy) {
  EXPECT_EQ(ChooseCopy({Offer({kNew}), Offer({}), Offer({})}).why_none, "rank 1 has none");
  EXPECT_EQ(ChooseCopy({Offer({kNew}), Offer({kNew}), Offer({kOld})}).why_none,
            "no step is common to all ranks: rank 0 has 40 (attempt 1), rank 2 has 20 (attempt 1)");
}

TEST(CopyOfferTest, TextIsReadBack) {
  for (const CopyOffer& offer : {CopyOffer{}, CopyOffer{{kNew}, {}}, CopyOffer{{kNew, kOld}, kOld},
                                 CopyOffer{{{9'000'000'000, 3}}, CopyId{9'000'000'000, 3}}}) {
    EXPECT_EQ(CopyOffer::FromText(offer.ToText()), offer) << offer.ToText();
  }
}

TEST(CopyOfferTest, RejectsOtherTexts) {
  for (const char* text : {" ", "20", "20@", "@1", "20@1 ", "20@1 40@1 60@1", "-1@1", "20@-1",
                           "20@1!!", "20 @1", "99999999999999999999@1"})
    EXPECT_EQ(CopyOffer::FromText(text), std::nullopt) << text;
}

// Random ranks have up to two copies, some of them damaged. The rounds must end with the newest
// copy that is intact on all ranks.
TEST(ChooseCopyTest, RoundsEndWithNewestWholeCopy) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < 2'000; ++run) {
    const size_t ranks = 1 + random() % 4;
    std::vector<CopyOffer> offers(ranks);
    std::vector<std::map<CopyId, bool>> whole(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (const CopyId& copy : {CopyId{20, 1}, CopyId{40, 1}, CopyId{40, 2}}) {
        if (random() % 4 == 0 || offers[rank].copies.size() == 2) continue;
        offers[rank].copies.push_back(copy);
        whole[rank][copy] = random() % 5 != 0;
      }
    }
    std::optional<CopyId> expected;
    for (const auto& [copy, is_whole] : whole[0]) {
      if (std::ranges::all_of(whole, [&](const auto& own) {
            const auto found = own.find(copy);
            return found != own.end() && found->second;
          })) {
        expected = copy;  // copies are in ascending order
      }
    }
    CopyChoice choice = ChooseCopy(offers);
    for (int round = 0; !choice.is_final; ++round) {
      ASSERT_LT(round, 6);
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (whole[rank][*choice.copy]) {
          offers[rank].verified = choice.copy;
        } else {
          std::erase(offers[rank].copies, *choice.copy);
        }
      }
      choice = ChooseCopy(offers);
    }
    ASSERT_EQ(choice.copy, expected);
  }
}

}  // namespace
}  // namespace dslaunch
