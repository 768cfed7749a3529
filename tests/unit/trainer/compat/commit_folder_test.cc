#include "trainer/compat/horovod/commit_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"

namespace dslaunch::horovod {
namespace {

namespace fs = std::filesystem;

SavedCommit MakeCommit(int64_t generation, int64_t number) {
  const auto value = static_cast<double>(100 * generation + number);
  return {{generation, number},
          {{"a", at::full({2, 3}, value, at::kFloat)},
           {"b", at::full({}, value, at::kDouble)},
           {"empty", at::empty({0, 4}, at::kLong)},
           {"c", at::full({5}, number, at::kLong)}}};
}

std::vector<fs::path> Files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

CommitId NewestIn(const std::string& folder) {
  const auto found = CommitFolder(folder, 7).ReadNewest();
  return found ? found->id : CommitId();
}

TEST(CommitFileName, ParsesOnlyCanonicalNames) {
  const CommitId id{3, 12};
  const FileSum sum{4'567, 0xab};
  EXPECT_EQ(CommitFileName(id, sum), "commit.3.12.4567.000000ab.safetensors");
  const auto info = ParseCommitFileName("commit.3.12.4567.000000ab.safetensors");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->id, id);
  EXPECT_EQ(info->sum, sum);
  for (const char* other :
       {"", "unfinished", "commit.3.12.4567.000000ab", "commit.3.12.4567.ab.safetensors",
        "commit.3.12.4567.000000AB.safetensors", "commit.03.12.4567.000000ab.safetensors",
        "commit.-3.12.4567.000000ab.safetensors", "commit. 3.12.4567.000000ab.safetensors",
        "commit.3.12.4567.000000ab.safetensors2", "xcommit.3.12.4567.000000ab.safetensors",
        "commit.99999999999999999999.1.1.00000000.safetensors"}) {
    EXPECT_FALSE(ParseCommitFileName(other)) << other;
  }
}

TEST(NewestRank, ReturnsLowestRankWithNewestCommit) {
  EXPECT_EQ(NewestRank({{}}), 0);
  EXPECT_EQ(NewestRank({{}, {}, {}}), 0);
  EXPECT_EQ(NewestRank({{1, 4}, {1, 5}, {1, 5}}), 1);
  // A lost node's commits of an older generation do not count, however many they are.
  EXPECT_EQ(NewestRank({{1, 90}, {2, 0}, {1, 91}}), 1);
}

TEST(CommitFolder, ReadsLastWrittenCommit) {
  const TempDir folder;
  const std::string commits = folder / "not/there/yet";
  EXPECT_FALSE(CommitFolder(commits, 0).ReadNewest());
  const CommitFolder own(commits, 0);
  for (int64_t number = 0; number < 3; ++number) {
    own.Write(MakeCommit(1, number));
    EXPECT_EQ(Files(commits).size(), 1u) << "the last one only";
  }
  const auto found = own.ReadNewest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id, (CommitId{1, 2}));
  const SavedCommit expected = MakeCommit(1, 2);
  ASSERT_EQ(found->values.size(), expected.values.size());
  for (const auto& [name, value] : expected.values) {
    const auto same = std::ranges::find(found->values, name, &NamedTensor::name);
    ASSERT_NE(same, found->values.end()) << name;
    EXPECT_EQ(same->tensor.scalar_type(), value.scalar_type());
    EXPECT_TRUE(at::equal(same->tensor, value)) << name;
  }
}

TEST(CommitFolder, ReadsNewestIntactCommitOfAllNodes) {
  const TempDir folder;
  CommitFolder(folder.path(), 0).Write(MakeCommit(2, 1));
  CommitFolder(folder.path(), 1).Write(MakeCommit(1, 9));
  CommitFolder(folder.path(), 2).Write(MakeCommit(2, 3));
  folder.Write("node_1/unfinished", "half of one");
  folder.Write("node_1/notes.txt", "a user's");
  EXPECT_EQ(NewestIn(folder.path()), (CommitId{2, 3}));
  // Damages a file by one bit, then by a wrong length, until no valid commit is left.
  const auto damage = [&](const std::string& node, auto how) {
    for (const fs::path& file : Files(folder / node)) {
      if (file.extension() == ".safetensors") how(file);
    }
  };
  damage("node_2", [](const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-1, std::ios::end);
    stream.put('x');
  });
  testing::internal::CaptureStderr();
  EXPECT_EQ(NewestIn(folder.path()), (CommitId{2, 1}));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("commit 2.3 is not used: "),
            std::string::npos);
  damage("node_0", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); });
  EXPECT_EQ(NewestIn(folder.path()), (CommitId{1, 9}));
  damage("node_1", [](const fs::path& file) { fs::resize_file(file, 0); });
  EXPECT_EQ(NewestIn(folder.path()), CommitId());
  // The next commit is written despite the damaged files.
  CommitFolder(folder.path(), 1).Write(MakeCommit(1, 0));
  EXPECT_EQ(NewestIn(folder.path()), (CommitId{1, 0}));
}

TEST(CommitFolder, IgnoresFileThatIsNotSafetensors) {
  const TempDir folder;
  fs::create_directories(folder / "node_0");
  const std::string file = folder.Write("node_0/x", "not tensors");
  fs::rename(file, folder / ("node_0/" + CommitFileName({4, 0}, SumFile(file))));
  CommitFolder(folder.path(), 1).Write(MakeCommit(1, 0));
  testing::internal::CaptureStderr();
  EXPECT_EQ(NewestIn(folder.path()), (CommitId{1, 0}));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("commit 4.0 is not used"),
            std::string::npos);
}

TEST(CommitFolder, ReportsFolderThatCannotBeWritten) {
  const TempDir folder;
  const std::string file = folder.Write("file", "");
  try {
    CommitFolder(file, 0).Write(MakeCommit(1, 0));
    FAIL() << "a file is no folder";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_NE(std::string(error.what()).find(file + "/node_0"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dslaunch::horovod
