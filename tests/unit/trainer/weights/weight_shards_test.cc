#include "trainer/weights/weight_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "tests/support/temp_dir.h"
#include "trainer/base/byte_progress.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/write_journal.h"
#include "trainer/weights/weight_files.h"

namespace dslaunch::weight_shards_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const std::vector<TensorHeader> kTensors = {
    {"a", "U8", {10}}, {"b", "U8", {6}}, {"c", "U8", {4}}, {"d", "U8", {30}}, {"e", "U8", {0}}};

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// Writes each element as the tensor's index, and records which tensors were written. Throws at the
// tensor `fails_at`.
struct Source {
  std::vector<size_t> written = {};
  size_t fails_at = SIZE_MAX;

  void operator()(size_t index, NewSafetensorsFile& file) {
    if (index == fails_at) throw std::runtime_error("stopped");
    written.push_back(index);
    const std::vector<char> bytes(BytesOf(kTensors[index]), static_cast<char>(index));
    file.Write(bytes.data(), bytes.size());
  }
};

void Write(const WeightOutput& output, Source& source) {
  WriteWeights(output, kTensors, [&](size_t i, NewSafetensorsFile& file) { source(i, file); });
}

WeightOutput InShards(const TempDir& folder, const std::string& work) {
  return {.folder = folder.path(), .work = work, .max_shard_bytes = 16};
}

void ExpectWhole(const std::string& folder) {
  std::set<std::string> names;
  for (const std::string& path : WeightFiles(folder)) {
    const SafetensorsFile file(path);
    for (const auto& [name, tensor] : file.tensors()) {
      std::vector<char> bytes(tensor.end - tensor.begin);
      file.Read(tensor, bytes.data());
      EXPECT_THAT(bytes, testing::Each(name[0] - 'a')) << name;
      names.insert(name);
    }
  }
  EXPECT_EQ(names.size(), kTensors.size());
}

TEST(WeightShardsTest, FillsShardsUpToLimit) {
  const auto shards = DivideIntoShards(kTensors, "model", 16);
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[0].name, "model-00001-of-00003.safetensors");
  EXPECT_THAT(shards[0].tensors, ElementsAre(0, 1));
  EXPECT_THAT(shards[1].tensors, ElementsAre(2));
  EXPECT_THAT(shards[2].tensors, ElementsAre(3, 4)) << "one that is too large has its own shard";
  EXPECT_EQ(shards[2].bytes, 30u);
  const auto one = DivideIntoShards(kTensors, "model", 50);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "model.safetensors");
  EXPECT_EQ(DivideIntoShards({}, "model", 16).size(), 1u);
}

TEST(WeightShardsTest, IndexNamesShardOfEachTensor) {
  const TempDir folder;
  Source source;
  Write(InShards(folder, ""), source);
  ExpectWhole(folder.path());
  std::ifstream stream(folder / "model.safetensors.index.json");
  const auto index = nlohmann::json::parse(stream);
  EXPECT_EQ(index["metadata"]["total_size"], 50);
  EXPECT_EQ(index["weight_map"]["c"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(NamesIn(folder.path()).size(), 4u) << "nothing temporary is left";
}

TEST(WeightShardsTest, ReplacesWeightsOfOtherLayout) {
  const TempDir folder;
  folder.Write("notes.txt", "mine");
  Source source;
  Write(InShards(folder, ""), source);
  Write({.folder = folder.path()}, source);
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("model.safetensors", "notes.txt"));
  ExpectWhole(folder.path());
  Write(InShards(folder, ""), source);
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"))
      << "transformers would read it instead of the shards";
  ExpectWhole(folder.path());
}

TEST(WeightShardsTest, ContinuesInterruptedWriteOfSameWork) {
  const TempDir folder;
  const WeightOutput output = InShards(folder, "checkpoint-5");
  Source stopped{.fails_at = 3};
  EXPECT_THROW(Write(output, stopped), std::runtime_error);
  EXPECT_THAT(NamesIn(folder.path()),
              UnorderedElementsAre("tmp-journal", "tmp-model-00001-of-00003.safetensors",
                                   "tmp-model-00002-of-00003.safetensors"))
      << "no final name, no unfinished file";
  EXPECT_TRUE(IsInterrupted(output));
  // Damage in a finished shard is detected.
  std::fstream damaged(folder / "tmp-model-00001-of-00003.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekp(-1, std::ios::end);
  damaged.put('x');
  damaged.close();
  Source next;
  uint64_t kept_bytes = 0;
  WeightOutput again = output;
  again.on_kept = [&](uint64_t bytes) { kept_bytes += bytes; };
  Write(again, next);
  EXPECT_THAT(next.written, ElementsAre(0, 1, 3, 4));
  EXPECT_EQ(kept_bytes, 4u);
  ExpectWhole(folder.path());
  EXPECT_FALSE(IsInterrupted(output));
}

TEST(WeightShardsTest, ContinuesAfterKillWhileRenaming) {
  const TempDir folder;
  const WeightOutput output = InShards(folder, "checkpoint-5");
  Source stopped{.fails_at = 3}, next;
  EXPECT_THROW(Write(output, stopped), std::runtime_error);
  std::filesystem::rename(folder / "tmp-model-00001-of-00003.safetensors",
                          folder / "model-00001-of-00003.safetensors");
  Write(output, next);
  EXPECT_THAT(next.written, ElementsAre(3, 4));
  ExpectWhole(folder.path());
}

TEST(WeightShardsTest, StartsOverForOtherWork) {
  const TempDir folder;
  Source stopped{.fails_at = 3}, next;
  EXPECT_THROW(Write(InShards(folder, "checkpoint-5"), stopped), std::runtime_error);
  EXPECT_FALSE(IsInterrupted(InShards(folder, "checkpoint-6")));
  Write(InShards(folder, "checkpoint-6"), next);
  EXPECT_EQ(next.written.size(), kTensors.size());

  const TempDir other;
  EXPECT_THROW(Write(InShards(other, ""), stopped), std::runtime_error);
  EXPECT_THAT(NamesIn(other.path()), IsEmpty()) << "nothing would continue it";
}

TEST(WeightShardsTest, RefusesSecondWriter) {
  const TempDir folder;
  const WriteJournal first(folder.path(), "checkpoint-5");
  Source source;
  try {
    Write(InShards(folder, "checkpoint-5"), source);
    ADD_FAILURE();
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_THAT(error.what(), HasSubstr("another process writes into " + folder.path()));
  }
}

TEST(WeightShardsTest, NamesBytesThatDiskLacks) {
  const TempDir folder;
  const std::vector<TensorHeader> huge = {{"a", "F32", {int64_t{1} << 60}}};
  try {
    WriteWeights({.folder = folder.path()}, huge, [](size_t, NewSafetensorsFile&) { FAIL(); });
    ADD_FAILURE();
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(folder.path() + ": the disk is too small: 4194304.0 TiB "));
  }
}

TEST(WriteJournalTest, IgnoresJournalsThatItDidNotWrite) {
  for (const std::string text : {"", "\n", "\"work\"", "\"other\"\n[\"f\",1,2]\n",
                                 "\"work\"\n{\n[]\n[\"f\",-1,2]\n[\"f\",1]\n[\"f\",1,2"}) {
    const TempDir folder;
    folder.Write("f", "x");
    folder.Write(kWriteJournal, text);
    const WriteJournal journal(folder.path(), "work");
    EXPECT_FALSE(journal.Completed("f", folder / "f")) << text;
  }
}

TEST(ByteProgressTest, NamesRateAndTimeLeft) {
  EXPECT_EQ(ByteProgressText(0, 2048, 0), "0.0 KiB of 2.0 KiB");
  EXPECT_EQ(ByteProgressText(1 << 20, 3 << 20, 2), "1.0 MiB of 3.0 MiB, 512.0 KiB/s, 4 s left");
  EXPECT_EQ(ByteProgressText(1 << 20, 101 << 20, 1),
            "1.0 MiB of 101.0 MiB, 1.0 MiB/s, 1 min 40 s left");
  EXPECT_EQ(ByteProgressText(2048, 2048, 1), "2.0 KiB of 2.0 KiB, 2.0 KiB/s");
}

}  // namespace
}  // namespace dslaunch::weight_shards_test
