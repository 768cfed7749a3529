#include "agent/logs/rank_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dslaunch::rank_files_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(PiecesToReadTest, ReadsShortFilesWhole) {
  EXPECT_THAT(PiecesToRead(0, 100), IsEmpty());
  EXPECT_THAT(PiecesToRead(100, 100), ElementsAre(Pair(0, 100)));
  EXPECT_THAT(PiecesToRead(100'000, 1 << 20), ElementsAre(Pair(0, 65'536), Pair(65'536, 34'464)));
}

TEST(PiecesToReadTest, SamplesLongFilesFromBeginningToEnd) {
  for (const uint64_t bytes : {70'001ull, 1'000'000ull, 5'000'000'000ull, 1ull << 50}) {
    const std::vector<FilePiece> pieces = PiecesToRead(bytes, 65'536);
    ASSERT_GE(pieces.size(), 15u);
    uint64_t behind = 0, sum = 0;
    for (const auto& [at, size] : pieces) {
      EXPECT_GE(at, behind) << "they do not overlap";
      behind = at + size;
      sum += size;
    }
    EXPECT_EQ(pieces.front().first, 0u);
    EXPECT_EQ(behind, bytes) << "the newest lines are there";
    EXPECT_LE(sum, 65'536u);
  }
  EXPECT_EQ(PiecesToRead(100, 0).size(), 1u);
}

TEST(WholeLinesTest, OmitsPartialLines) {
  EXPECT_EQ(WholeLines("ab\ncd\nef", true), "ab\ncd\n");
  EXPECT_EQ(WholeLines("ab\ncd\nef", false), "cd\n");
  EXPECT_EQ(WholeLines("abc", false), "");
  EXPECT_EQ(WholeLines("", true), "");
}

class RankFileReaderTest : public ::testing::Test {
 protected:
  std::string Make(const std::string& rank_folder) const {
    std::filesystem::create_directories(dir_ / rank_folder);
    return rank_folder + "/";
  }
  // Returns the concatenated content of one kind, and keeps all parts in parts_.
  std::string Read(pb::RankFilePart::Kind kind, uint64_t max_bytes = 1 << 20) {
    parts_.clear();
    RankFileReader reader(dir_.path(), max_bytes);
    std::string content;
    while (std::optional<pb::RankFilePart> part = reader.Next()) {
      if (part->kind() == kind && !part->end()) content += part->data();
      parts_.push_back(*std::move(part));
    }
    EXPECT_TRUE(!parts_.empty() && parts_.back().end());
    EXPECT_EQ(std::ranges::count_if(parts_, &pb::RankFilePart::end), 1);
    return content;
  }

  TempDir dir_;
  std::vector<pb::RankFilePart> parts_;
};

TEST_F(RankFileReaderTest, ReadsOnlyFilesThatTheReportNeeds) {
  const std::string rank = Make("attempt_2/rank_7");
  dir_.Write(rank + "metrics.jsonl", "{\"step\":1}\n");
  dir_.Write(rank + "run.json", "{}");
  dir_.Write(rank + "stdout.log", "secret");
  dir_.Write(rank + "other.json", "secret");
  dir_.Write(Make("attempt_2/other") + "run.json", "secret");
  EXPECT_EQ(Read(pb::RankFilePart::METRICS), "{\"step\":1}\n");
  EXPECT_EQ(Read(pb::RankFilePart::RUN), "{}");
  ASSERT_EQ(parts_.size(), 5u) << "two for each file, and the end";
  EXPECT_EQ(parts_[0].attempt(), 2u);
  EXPECT_EQ(parts_[0].rank(), 7u);
  EXPECT_EQ(parts_[0].file_bytes(), 11u);
  for (const pb::RankFilePart& part : parts_)
    EXPECT_EQ(part.data().find("secret"), std::string::npos);
}

TEST_F(RankFileReaderTest, SkipsLinksPipesAndFolders) {
  const std::string rank = Make("attempt_1/rank_0");
  dir_.Write("secret", "secret");
  std::filesystem::create_symlink(dir_ / "secret", dir_ / (rank + "run.json"));
  ASSERT_EQ(::mkfifo((dir_ / (rank + "metrics.jsonl")).c_str(), 0600), 0);
  std::filesystem::create_directory(dir_ / (rank + "profile.json"));
  Read(pb::RankFilePart::RUN);
  EXPECT_EQ(parts_.size(), 1u) << "the end alone";
}

TEST_F(RankFileReaderTest, ThinsLongMetricsAndOmitsOtherLongFiles) {
  const std::string rank = Make("attempt_1/rank_0");
  std::string metrics;
  for (int step = 1; step <= 20'000; ++step)
    metrics += "{\"step\":" + std::to_string(step) + ",\"loss\":3.25}\n";
  dir_.Write(rank + "metrics.jsonl", metrics);
  dir_.Write(rank + "profile.json", std::string(9 << 20, ' '));
  dir_.Write(rank + "trace.json", std::string(1000, ' '));
  const std::string read = Read(pb::RankFilePart::METRICS, 256 << 10);
  EXPECT_LE(read.size(), 128u << 10);
  EXPECT_GE(read.size(), 64u << 10);
  EXPECT_TRUE(read.starts_with("{\"step\":1,"));
  EXPECT_TRUE(read.ends_with("{\"step\":20000,\"loss\":3.25}\n"));
  size_t begin = 0;
  for (size_t end; (end = read.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_EQ(read.compare(begin, 8, "{\"step\":"), 0) << "a line begins in its middle";
    EXPECT_EQ(read[end - 1], '}');
  }
  EXPECT_EQ(Read(pb::RankFilePart::PROFILE, 64 << 20), "");
  EXPECT_EQ(Read(pb::RankFilePart::TRACE), "");
  const auto trace = std::ranges::find(parts_, pb::RankFilePart::TRACE, &pb::RankFilePart::kind);
  EXPECT_EQ(trace->path(), dir_ / (rank + "trace.json"));
  EXPECT_EQ(trace->file_bytes(), 1000u);
  const auto profile =
      std::ranges::find(parts_, pb::RankFilePart::PROFILE, &pb::RankFilePart::kind);
  EXPECT_TRUE(profile->incomplete());
}

}  // namespace
}  // namespace dslaunch::rank_files_test
