#include "cli/output/line_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace dslaunch::line_folder_test {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using TimePoint = LineFolder::TimePoint;

constexpr TimePoint kStart{};

// A LineFolder that records its output.
class Folded {
 public:
  explicit Folded(size_t ranks) { folder_.SetRanks(ranks); }

  void Add(int at_ms, int rank, std::string_view text, bool is_stderr = false) {
    folder_.Add(kStart + milliseconds(at_ms), rank, is_stderr, "[n:" + std::to_string(rank) + "] ",
                text, Sink());
  }
  void Flush(int at_ms) { folder_.Flush(kStart + milliseconds(at_ms), Sink()); }
  void Finish() { folder_.Finish(Sink()); }
  std::optional<TimePoint> due() const { return folder_.FlushDue(); }

  // Returns the lines that were output since the last call, with their tags.
  std::vector<std::string> Take() { return std::exchange(given_, {}); }

 private:
  LineFolder::Sink Sink() {
    return [this](const LineFolder::Line& line) {
      const std::string tag =
          line.ranks.size() == 1 ? std::string(line.tag) : FoldedTag(line.ranks);
      given_.push_back((line.is_stderr ? "! " : "") + tag + std::string(line.text));
    };
  }

  LineFolder folder_;
  std::vector<std::string> given_;
};

TEST(LineFolder, OutputsLinesOfOnlyRankAtOnce) {
  Folded folded(1);
  folded.Add(0, 3, "a");
  folded.Add(0, 3, "a");
  EXPECT_THAT(folded.Take(), ElementsAre("[n:3] a", "[n:3] a"));
  EXPECT_EQ(folded.due(), std::nullopt);
}

TEST(LineFolder, OutputsLineWhenLastRankHasWrittenIt) {
  Folded folded(15);
  for (int rank = 14; rank > 0; --rank) folded.Add(15 - rank, rank, "loading");
  EXPECT_THAT(folded.Take(), IsEmpty());
  folded.Add(100, 0, "loading");
  EXPECT_THAT(folded.Take(), ElementsAre("[x15 ranks: 0-14] loading"));
  EXPECT_EQ(folded.due(), std::nullopt);
}

TEST(LineFolder, OutputsLineOfSomeRanksAfterWindow) {
  Folded folded(8);
  folded.Add(0, 5, "warning");
  folded.Add(150, 2, "warning");
  folded.Add(150, 3, "warning");
  EXPECT_EQ(folded.due(), kStart + LineFolder::kWindow);
  folded.Flush(199);
  EXPECT_THAT(folded.Take(), IsEmpty());
  folded.Flush(200);
  EXPECT_THAT(folded.Take(), ElementsAre("[x3 ranks: 2-3,5] warning"));
  folded.Add(201, 1, "warning");  // later than the window of the first line
  folded.Flush(401);
  EXPECT_THAT(folded.Take(), ElementsAre("[n:1] warning"));
}

TEST(LineFolder, KeepsDifferentLinesApart) {
  Folded folded(2);
  folded.Add(0, 0, "rank 0 is here");
  folded.Add(0, 1, "rank 1 is here");
  folded.Add(0, 0, "same");
  folded.Add(0, 1, "same", /*is_stderr=*/true);
  folded.Finish();
  EXPECT_THAT(folded.Take(), ElementsAre("[n:0] rank 0 is here", "[n:1] rank 1 is here",
                                         "[n:0] same", "! [n:1] same"));
}

TEST(LineFolder, FoldsRepeatedLinesOneByOne) {
  Folded folded(2);
  for (int i = 0; i < 3; ++i) folded.Add(i, 0, ".");
  for (int i = 0; i < 2; ++i) folded.Add(10 + i, 1, ".");
  folded.Finish();
  EXPECT_THAT(folded.Take(), ElementsAre("[x2 ranks: 0-1] .", "[x2 ranks: 0-1] .", "[n:0] ."));
}

TEST(LineFolder, KeepsOrderOfEachRank) {
  Folded folded(3);
  folded.Add(0, 0, "a");
  folded.Add(0, 0, "b");
  folded.Add(1, 1, "b");
  folded.Add(1, 1, "a");  // not merged with rank 0's "a", because rank 1 wrote "b" before
  folded.Finish();
  EXPECT_THAT(folded.Take(), ElementsAre("[n:0] a", "[x2 ranks: 0-1] b", "[n:1] a"));
}

TEST(LineFolder, OutputsEarlierLinesBeforeCompleteLine) {
  Folded folded(2);
  folded.Add(0, 0, "only rank 0");
  folded.Add(5, 1, "only rank 1");
  folded.Add(5, 1, "both");
  folded.Add(5, 1, "later");
  EXPECT_THAT(folded.Take(), IsEmpty());
  folded.Add(6, 0, "both");
  EXPECT_THAT(folded.Take(), UnorderedElementsAre("[n:0] only rank 0", "[n:1] only rank 1",
                                                  "[x2 ranks: 0-1] both"));
  folded.Flush(205);
  EXPECT_THAT(folded.Take(), ElementsAre("[n:1] later"));
}

// This is the usual start of a program. All output of a rank arrives in one piece.
TEST(LineFolder, FoldsLinesAroundUnequalOnes) {
  Folded folded(3);
  for (const int rank : {2, 0, 1}) {
    folded.Add(rank, rank, "loading");
    folded.Add(rank, rank, "I am " + std::to_string(rank));
    if (rank == 0) {
      for (int i = 0; i < 5; ++i) folded.Add(rank, rank, "rank 0 has more to say");
    }
    folded.Add(rank, rank, "training");
    folded.Add(rank, rank, "I am still " + std::to_string(rank));
  }
  folded.Finish();
  const std::vector<std::string> lines = folded.Take();
  EXPECT_EQ(lines.size(), 2u + 3u + 5u + 3u);
  EXPECT_THAT(lines, Contains("[x3 ranks: 0-2] loading"));
  EXPECT_THAT(lines, Contains("[x3 ranks: 0-2] training"));
}

TEST(LineFolder, BoundsHeldBytes) {
  LineFolder folder;
  folder.SetRanks(2);
  size_t given = 0;
  const auto sink = [&](const LineFolder::Line& line) { given += line.text.size(); };
  const std::string text(1000, 'x');
  constexpr size_t kLines = 10'000;
  for (size_t i = 0; i < kLines; ++i)
    folder.Add(kStart, 0, false, "[n:0] ", text + std::to_string(i), sink);
  EXPECT_GE(given + LineFolder::kMaxBytes, kLines * text.size());
  given = 0;
  for (size_t i = 0; i < 1'000'000; ++i) folder.Add(kStart, 0, false, "[n:0] ", "", sink);
  folder.Add(kStart, 1, false, "[n:1] ", "end", sink);
  folder.Finish(sink);
  EXPECT_GE(given, 3u);
}

TEST(LineFolder, FoldsManyLinesQuickly) {
  LineFolder folder;
  folder.SetRanks(16);
  size_t given = 0;
  const auto sink = [&](const LineFolder::Line&) { ++given; };
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20'000; ++i) {
    for (int rank = 0; rank < 16; ++rank) {
      const std::string text = i % 2 == 0 ? "." : "step " + std::to_string(i + rank);
      folder.Add(kStart + milliseconds(i), rank, false, "[n:0] ", text, sink);
    }
  }
  folder.Finish(sink);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_GE(given, 20'000u);
}

// Compares with a reference that folds nothing: each rank's lines must be output once, in order and
// unchanged, and no line may be held longer than the window.
TEST(LineFolder, OutputsEachRanksLinesOnceAndInOrder) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 6);
    const unsigned texts = 1 + random() % 4;
    const unsigned big = random() % 3 == 0 ? 60'000 : 0;  // some rounds exceed kMaxBytes
    LineFolder folder;
    folder.SetRanks(static_cast<size_t>(ranks));
    using Lines = std::vector<std::pair<bool, std::string>>;
    std::map<int, Lines> written, given;
    std::map<int, std::deque<TimePoint>> since;
    TimePoint now = kStart;
    size_t shown = 0;
    const auto sink = [&](const LineFolder::Line& line) {
      ++shown;
      ASSERT_FALSE(line.ranks.empty());
      ASSERT_TRUE(std::ranges::is_sorted(line.ranks));
      for (const int rank : line.ranks) {
        given[rank].emplace_back(line.is_stderr, line.text);
        ASSERT_FALSE(since[rank].empty());
        ASSERT_LE(now - since[rank].front(), LineFolder::kWindow);
        since[rank].pop_front();
      }
    };
    for (int i = 0; i < 300; ++i) {
      // Flushes lines when they are due, as a timer would.
      TimePoint next = now + milliseconds(random() % 5 == 0 ? random() % 300 : random() % 3);
      while (folder.FlushDue() && *folder.FlushDue() <= next) {
        now = std::max(now, *folder.FlushDue());
        folder.Flush(now, sink);
      }
      now = next;
      const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const bool is_stderr = random() % 4 == 0;
      std::string text = "line " + std::to_string(random() % texts);
      if (big > 0 && random() % 8 == 0) text.append(big, 'x');
      written[rank].emplace_back(is_stderr, text);
      since[rank].push_back(now);
      folder.Add(now, rank, is_stderr, "", text, sink);
      if (ranks == 1) {
        ASSERT_EQ(given, written);
      }
    }
    folder.Finish(sink);
    ASSERT_EQ(given, written) << "round " << round;
    ASSERT_LE(shown, 300u);
  }
}

}  // namespace
}  // namespace dslaunch::line_folder_test
