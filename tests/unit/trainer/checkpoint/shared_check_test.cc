#include "trainer/checkpoint/shared_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/shards/shards.h"

namespace dslaunch::shared_check_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<FileRecord> FilesOf(const std::vector<uint64_t>& sizes) {
  std::vector<FileRecord> files;
  for (const uint64_t bytes : sizes) files.push_back({"f", {bytes, 0}});
  return files;
}

TEST(PartsToCheckTest, AssignsEveryByteOnceAndEvenly) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> sizes(random() % 6);
    uint64_t total = 0;
    for (uint64_t& size : sizes) total += size = random() % 3 == 0 ? 0 : random() % 50;
    const std::vector<FileRecord> files = FilesOf(sizes);
    const int ranks = 1 + static_cast<int>(random() % 7);
    std::vector<uint64_t> at(sizes.size());
    std::vector<int> beginnings(sizes.size());
    for (int rank = 0; rank < ranks; ++rank) {
      uint64_t own = 0;
      for (const FilePart& part : PartsToCheck(files, rank, ranks)) {
        ASSERT_EQ(part.begin, at[part.file]);
        at[part.file] = part.end;
        own += part.end - part.begin;
        beginnings[part.file] += part.begin == 0 ? 1 : 0;
      }
      ASSERT_GE(own, total / static_cast<uint64_t>(ranks));
      ASSERT_LE(own, total / static_cast<uint64_t>(ranks) + 1);
    }
    ASSERT_EQ(at, sizes);
    ASSERT_THAT(beginnings, testing::Each(1));
  }
}

TEST(PartsToCheckTest, HandlesSizesNearTheIntegerLimit) {
  const std::vector<FileRecord> files = FilesOf({uint64_t{1} << 62, (uint64_t{1} << 62) - 1});
  EXPECT_EQ(PartsToCheck(files, 0, 2), (std::vector<FilePart>{{0, 0, uint64_t{1} << 62}}));
  EXPECT_EQ(PartsToCheck(files, 1, 2), (std::vector<FilePart>{{1, 0, (uint64_t{1} << 62) - 1}}));
}

// Provides two files that together contain one tensor.
class SharedCheckTest : public testing::Test {
 protected:
  SharedCheckTest() {
    std::vector<float> values(1000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const auto write = [&](const std::string& name, int64_t begin, int64_t end) {
      checkpoint_.manifest.files.push_back(
          {name, WriteSafetensors(temp_ / name, {{"w", "F32", {end - begin}, &values[begin]}})});
      checkpoint_.manifest.tensors[0].slices.push_back(
          {Slice(Shard::Whole(1000), begin, end), name});
    };
    checkpoint_.folder = temp_.path();
    checkpoint_.manifest.tensors = {{"w", "F32", {1000}, {}}};
    write("a.safetensors", 0, 300);
    write("b.safetensors", 300, 1000);
  }

  std::string DamageSeenBy(int ranks) const {
    std::vector<CheckReport> reports;
    for (int rank = 0; rank < ranks; ++rank) {
      reports.push_back(ParseReport(FormatReport(CheckParts(checkpoint_, rank, ranks)), rank));
    }
    return FirstDamage(checkpoint_, reports);
  }
  void ExpectDamage(const std::string& words) const {
    const std::string alone = DamageSeenBy(1);
    EXPECT_THAT(alone, HasSubstr(words));
    for (const int ranks : {2, 3, 5, 8}) EXPECT_EQ(DamageSeenBy(ranks), alone) << ranks;
    EXPECT_EQ(FindDamage(checkpoint_).at(0), alone) << "one process finds the same";
  }
  std::string File(const std::string& name) const { return temp_ / name; }
  void Flip(const std::string& name, std::streamoff at) const {
    std::fstream stream(File(name), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const int old = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(old ^ 4));
  }

  const TempDir temp_;
  Checkpoint checkpoint_;
};

TEST_F(SharedCheckTest, FindsNoDamageInWholeCheckpoint) {
  for (int ranks = 1; ranks < 12; ++ranks) EXPECT_EQ(DamageSeenBy(ranks), "") << ranks;
}

TEST_F(SharedCheckTest, NamesFlippedBitAlikeForAnyNumberOfRanks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const FileRecord& file : checkpoint_.manifest.files) {
    for (int round = 0; round < 40; ++round) {
      const auto at = static_cast<std::streamoff>(random() % file.sum.bytes);
      SCOPED_TRACE(file.name + " byte " + std::to_string(at));
      Flip(file.name, at);
      ExpectDamage(file.name + ": its checksum is wrong");
      Flip(file.name, at);
    }
  }
}

TEST_F(SharedCheckTest, NamesFirstDamagedFile) {
  Flip("a.safetensors", 100);
  fs::remove(File("b.safetensors"));
  ExpectDamage("a.safetensors: its checksum is wrong");
}

TEST_F(SharedCheckTest, NamesMissingTruncatedAndExtendedFiles) {
  const auto bytes = fs::file_size(File("b.safetensors"));
  fs::resize_file(File("b.safetensors"), bytes - 1);
  ExpectDamage("b.safetensors has " + std::to_string(bytes - 1) + " bytes of ");
  fs::resize_file(File("b.safetensors"), bytes + 1);
  ExpectDamage("b.safetensors has " + std::to_string(bytes + 1) + " bytes of ");
  fs::remove(File("b.safetensors"));
  ExpectDamage("b.safetensors is missing");
}

TEST_F(SharedCheckTest, NamesTensorThatDiffersFromManifest) {
  checkpoint_.manifest.tensors[0].slices[0].shard.stop = 299;
  checkpoint_.manifest.tensors[0].slices[1].shard.start = 299;
  ExpectDamage("a.safetensors: tensor w differs from its record");
}

TEST_F(SharedCheckTest, ReportsPartsThatNoRankChecked) {
  std::vector<CheckReport> reports(3);
  for (int rank = 0; rank < 3; ++rank) {
    reports[static_cast<size_t>(rank)] = CheckParts(checkpoint_, rank, 3);
  }
  reports[1].parts.clear();
  EXPECT_THAT(FirstDamage(checkpoint_, reports), HasSubstr("was not checked"));
}

TEST_F(SharedCheckTest, NamesRankOfInvalidReport) {
  for (const std::string text : {"", "{", "[]", "{}", R"({"parts":[1]})",
                                 R"({"parts":[],"problem":[1]})", R"({"parts":[["a",2]]})"}) {
    try {
      ParseReport(text, 3);
      ADD_FAILURE() << text;
    } catch (const TrainError& error) {
      EXPECT_THAT(error.what(), StartsWith("rank 3: "));
    }
  }
}

}  // namespace
}  // namespace dslaunch::shared_check_test
