// Tests a folder in which one of two checkpoints is damaged, in every way that keeps its folder.
// The other checkpoint must be chosen, and the message must name the damaged file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "tests/support/temp_dir.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/shards/shards.h"

namespace dslaunch::checkpoint_damage_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Contents(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void Overwrite(const std::string& file, const std::string& content) {
  fs::remove(file);  // because some file systems wait for the disk when a file is truncated
  std::ofstream(file, std::ios::binary) << content;
}

void Flip(const std::string& file, size_t byte, size_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int old = stream.get();
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(old ^ (1 << bit)));
}

class CheckpointDamageTest : public testing::Test {
 protected:
  CheckpointDamageTest() {
    CheckpointFolder folder(temp_.path());
    for (const int64_t step : {1, 2}) {
      Manifest m;
      m.run_id = "run";
      m.job_id = "job";
      m.position.step = step;
      m.world_size = 2;
      const std::string begun = folder.BegunPath(TagOf(step), "save");
      folder.Begin(begun);
      const std::vector<float> weight = {1.0f * step, 2.0f * step};
      for (const int64_t part : {0, 1}) {
        const std::string name = part == 0 ? "a.safetensors" : "b.safetensors";
        m.files.push_back(
            {name, WriteSafetensors(begun + "/" + name, {{"w", "F32", {1}, &weight[part]}})});
      }
      const Shard w = Shard::Whole(2);
      m.tensors = {{"w",
                    "F32",
                    {2},
                    {{Slice(w, 0, 1), "a.safetensors"}, {Slice(w, 1, 2), "b.safetensors"}}}};
      folder.Commit(begun, TagOf(step), m);
      folder.Settle(TagOf(step), m.run_id, 2);
    }
  }

  std::string File(const std::string& name) const { return newest_ + "/" + name; }

  void ExpectSkipped(const std::string& file, const std::string& cause) const {
    const ResumeDecision decision = CheckpointFolder(temp_.path()).Choose({});
    ASSERT_TRUE(decision.checkpoint.has_value()) << decision.reason;
    ASSERT_EQ(decision.checkpoint->tag, "step_000001");
    ASSERT_THAT(decision.reason, HasSubstr("skipped step_000002: " + file));
    ASSERT_THAT(decision.reason, HasSubstr(cause));
  }

  const TempDir temp_;
  const std::string newest_ = temp_ / "step_000002";
  const std::vector<std::string> files_ = {"manifest.json", "a.safetensors", "b.safetensors"};
};

TEST_F(CheckpointDamageTest, NamesFileWithFlippedBit) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::string& name : files_) {
    const auto bytes = static_cast<size_t>(fs::file_size(File(name)));
    for (size_t byte = random() % 3; byte < bytes; byte += 1 + random() % 5) {
      SCOPED_TRACE(name + " byte " + std::to_string(byte));
      const size_t bit = random() % 8;
      Flip(File(name), byte, bit);
      ASSERT_NO_FATAL_FAILURE(ExpectSkipped(File(name), "checksum"));
      Flip(File(name), byte, bit);
    }
  }
  EXPECT_EQ(CheckpointFolder(temp_.path()).Choose({}).checkpoint->tag, "step_000002");
}

TEST_F(CheckpointDamageTest, NamesTruncatedExtendedMissingAndSwappedFiles) {
  for (const std::string& name : files_) {
    SCOPED_TRACE(name);
    const std::string good = Contents(File(name));
    const bool sized = name != kManifestFile;
    for (const size_t length : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
      Overwrite(File(name), good.substr(0, length));
      ExpectSkipped(File(name), sized ? "bytes of " : "checksum");
    }
    for (const std::string& more : {std::string(1, '\0'), std::string("\n"), good}) {
      Overwrite(File(name), good + more);
      ExpectSkipped(File(name), sized ? "bytes of " : "checksum");
    }
    Overwrite(File(name), Contents(temp_ / "step_000001/" + name) + (sized ? "" : " "));
    ExpectSkipped(File(name), "checksum");
    fs::remove(File(name));
    ExpectSkipped(File(name), sized ? "is missing" : "cannot be read");
    fs::create_directory(File(name));
    ExpectSkipped(File(name), "");
    fs::remove(File(name));
    ASSERT_EQ(mkfifo(File(name).c_str(), 0600), 0);
    ExpectSkipped(File(name), "");
    fs::remove(File(name));
    fs::create_symlink("/dev/zero", File(name));
    ExpectSkipped(File(name), "");
    fs::remove(File(name));
    Overwrite(File(name), good);
  }
  fs::rename(File("a.safetensors"), File("other"));
  fs::rename(File("b.safetensors"), File("a.safetensors"));
  fs::rename(File("other"), File("b.safetensors"));
  ExpectSkipped(File("a.safetensors"), "checksum");
}

}  // namespace
}  // namespace dslaunch::checkpoint_damage_test
