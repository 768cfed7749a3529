#include "trainer/checkpoint/rank_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "trainer/shards/shards.h"

namespace dslaunch::rank_record_test {
namespace {

using testing::HasSubstr;

std::string Failure(ExitCode code, const std::function<void()>& act) {
  try {
    act();
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}

RankRecord Rank(int rank, int64_t start, int64_t end) {
  const std::string file = "model-" + std::to_string(rank) + ".safetensors";
  return {{{file, {100, 0xfedcba98}}},
          {{"w", "F32", {2, 3}, {{Slice(Shard::Whole(6), start, end), file}}}}};
}

TEST(RankRecordTest, MergesSlicesOfAllRanksInOrder) {
  std::vector<RankRecord> ranks = {Rank(0, 4, 6), Rank(1, 0, 4)};
  for (RankRecord& rank : ranks) {
    rank.tensors.push_back({"empty", "F32", {0, 2}, {}});
    rank = ParseRecord(FormatRecord(rank), 0);
  }
  Manifest m;
  EnterRecords(ranks, m);
  ASSERT_EQ(m.files.size(), 2u);
  EXPECT_EQ(m.files[1].name, "model-1.safetensors");
  EXPECT_EQ(m.files[1].sum, (FileSum{100, 0xfedcba98}));
  ASSERT_EQ(m.tensors.size(), 2u);
  EXPECT_EQ(m.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  ASSERT_EQ(m.tensors[0].slices.size(), 2u);
  EXPECT_EQ(m.tensors[0].slices[0].file, "model-1.safetensors");
  EXPECT_EQ(m.tensors[0].slices[1].shard, Slice(Shard::Whole(6), 4, 6));
  EXPECT_TRUE(m.tensors[1].slices.empty());
  m.world_size = 2;
  EXPECT_NO_THROW(ParseManifest(FormatManifest(m), "m"));
}

TEST(RankRecordTest, OrdersSlicesByOffsetThenStart) {
  const Shard left = CutShard({2, 3}, 1, 0, 1), right = CutShard({2, 3}, 1, 1, 3);
  std::vector<RankRecord> ranks = {Rank(0, 0, 0), Rank(1, 0, 0), Rank(2, 0, 0)};
  ranks[0].tensors[0].slices[0].shard = Slice(right, 1, 4);
  ranks[1].tensors[0].slices[0].shard = left;
  ranks[2].tensors[0].slices[0].shard = Slice(right, 0, 1);
  for (RankRecord& rank : ranks) rank = ParseRecord(FormatRecord(rank), 0);
  Manifest m;
  EnterRecords(ranks, m);
  ASSERT_EQ(m.tensors[0].slices.size(), 3u);
  EXPECT_EQ(m.tensors[0].slices[0].shard, left);
  EXPECT_EQ(m.tensors[0].slices[1].shard, Slice(right, 0, 1));
  EXPECT_EQ(m.tensors[0].slices[2].shard, Slice(right, 1, 4));
}

TEST(RankRecordTest, RefusesPartsThatAreNotTheTensor) {
  const auto entering = [](const std::vector<RankRecord>& ranks) {
    return Failure(ExitCode::kInternal, [&] {
      Manifest m;
      EnterRecords(ranks, m);
    });
  };
  EXPECT_EQ(entering({Rank(0, 0, 3), Rank(1, 3, 6)}), "");
  EXPECT_THAT(entering({Rank(0, 0, 3), Rank(1, 2, 6)}), HasSubstr("tensor w leave"));
  EXPECT_THAT(entering({Rank(0, 0, 3), Rank(1, 4, 6)}), HasSubstr("tensor w leave"));
  EXPECT_THAT(entering({Rank(0, 0, 3), Rank(1, 3, 5)}), HasSubstr("tensor w are not the whole"));
  std::vector<RankRecord> ranks = {Rank(0, 0, 3), Rank(1, 3, 6)};
  ranks[1].tensors[0].slices[0].shard = CutShard({2, 3}, 1, 1, 3);
  EXPECT_THAT(entering(ranks), HasSubstr("tensor w leave"));
  ranks = {Rank(0, 0, 3), Rank(1, 3, 6)};
  ranks[1].tensors[0].dtype = "BF16";
  EXPECT_THAT(entering(ranks), HasSubstr("tensor w differ"));
}

TEST(RankRecordTest, NamesRankOfInvalidText) {
  for (const std::string text :
       {"", "=", "[]", "{}", R"({"files":[[]],"tensors":[]})", R"({"files":[],"tensors":[[1]]})",
        R"({"files":[],"tensors":[["w","F32",[1],[[0]]]]})"}) {
    EXPECT_THAT(Failure(ExitCode::kInternal, [&] { ParseRecord(text, 3); }),
                testing::StartsWith("rank 3: "))
        << text;
  }
}

TEST(RankRecordTest, ThrowsFailureWithItsCodeAndRank) {
  const std::string full = FormatFailure(TrainError(ExitCode::kIo, "/c/f: no space"));
  EXPECT_EQ(Failure(ExitCode::kIo, [&] { ParseRecord(full, 3); }), "rank 3: /c/f: no space");
  EXPECT_EQ(Failure(ExitCode::kIo,
                    [&] {
                      ThrowFirstFailure({"", "", full});
                    }),
            "rank 2: /c/f: no space");
  EXPECT_EQ(Failure(ExitCode::kIo, [&] { ThrowFirstFailure({full, full}); }), "/c/f: no space");
  EXPECT_EQ(Failure(ExitCode::kOk, [&] { ThrowFirstFailure({"", ""}); }), "");
}

// A forged record must not make a job exit with success, because any process that can connect to
// the store can write one.
TEST(RankRecordTest, FailureNeverHasCodeOfSuccess) {
  for (const char* code : {"0", "256", "-1"}) {
    const std::string forged =
        std::string(R"({"code":)") + code + R"(,"failure":"a\u001b[31mb\nc"})";
    EXPECT_EQ(Failure(ExitCode::kInternal, [&] { ParseRecord(forged, 3); }), "rank 3: abc");
    EXPECT_EQ(Failure(ExitCode::kInternal, [&] { ThrowFirstFailure({forged}); }), "abc");
  }
}

}  // namespace
}  // namespace dslaunch::rank_record_test
