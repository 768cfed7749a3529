#include "trainer/checkpoint/checkpoint_writer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/folder_lease.h"
#include "trainer/checkpoint/state.h"
#include "trainer/shards/shards.h"

namespace dslaunch::checkpoint_writer_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kRows = 3000, kColumns = 200;

// Returns the state of one rank: its rows of an evenly divided matrix, and a tensor that all ranks
// hold.
std::vector<TensorPart> StateOf(int rank, int world_size, double value) {
  const int64_t begin = kRows * rank / world_size * kColumns;
  const int64_t end = kRows * (rank + 1) / world_size * kColumns;
  return {{.name = "w",
           .tensor = at::arange(begin, end, at::kFloat) * value,
           .shape = {kRows, kColumns},
           .shard = Slice(Shard::Whole(kRows * kColumns), begin, end),
           .replicated = false},
          TensorPart::Whole("all", at::full({1'200'000}, value))};
}

CheckpointContent ContentOf(const ProcessGroup& group, double value) {
  CheckpointContent content;
  content.files = {OwnFile("model", StateOf(group.rank(), group.world_size(), value), group.rank(),
                           group.world_size())};
  content.manifest.world_size = group.world_size();
  return content;
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void ExpectNoErrors(const std::vector<std::exception_ptr>& errors) {
  for (const std::exception_ptr& error : errors) EXPECT_EQ(TextOf(error), "");
}

void ExpectHolds(const std::string& path, const std::string& tag, int world_size, double value) {
  ExpectNoErrors(RunRanks(world_size, [&](const ProcessGroup& group) {
    const ResumeDecision found = CheckpointFolder(path).ChooseTag(tag);
    ASSERT_TRUE(found.checkpoint) << found.reason;
    std::vector<TensorPart> state = StateOf(group.rank(), world_size, 0);
    LoadState(*found.checkpoint, state, group, group.rank());
    const std::vector<TensorPart> wanted = StateOf(group.rank(), world_size, value);
    EXPECT_TRUE(at::equal(state[0].tensor, wanted[0].tensor)) << "rank " << group.rank();
    EXPECT_TRUE(at::equal(state[1].tensor, wanted[1].tensor)) << "rank " << group.rank();
  }));
}

TEST(CheckpointWriterTest, OtherNumbersOfRanksReadFilesOfAllRanks) {
  const TempDir folder;
  ExpectNoErrors(RunRanks(3, [&](const ProcessGroup& group) {
    CheckpointFolder target(folder.path());
    CheckpointWriter writer(group, target, "job/1");
    writer.Save(ContentOf(group, 1), "a", 9);
    writer.Save(ContentOf(group, 2), "b", 9);
  }));
  EXPECT_THAT(Names(folder.path()), testing::ElementsAre("a", "b", "latest"));
  EXPECT_THAT(
      Names(folder / "a"),
      testing::ElementsAre("manifest.json", "model-00001-of-00003.safetensors",
                           "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"));
  for (const auto& entry : fs::directory_iterator(folder / "a")) {
    if (entry.path().extension() != ".safetensors") continue;
    const double third = (kRows * kColumns + 1'200'000) * 4 / 3.0;
    EXPECT_NEAR(static_cast<double>(entry.file_size()), third, 0.1 * third) << entry.path();
  }
  ExpectHolds(folder.path(), "a", 2, 1);
  ExpectHolds(folder.path(), "", 4, 2);
}

TEST(CheckpointWriterTest, BackgroundSaveWritesStateAtTheCall) {
  const TempDir folder;
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    CheckpointFolder target(folder.path());
    CheckpointWriter writer(group, target, "job/1");
    CheckpointContent content = ContentOf(group, 3);
    writer.Save(content, "sync", 9);
    writer.SaveInBackground(content, "async", 9);
    for (TensorPart& part : content.files[0].parts) part.tensor.fill_(-1);
    group.Barrier();  // collectives still work during the save
    writer.SaveInBackground(content, "later", 9);
    writer.Wait();
    EXPECT_FALSE(writer.failed());
  }));
  EXPECT_THAT(Names(folder.path()), testing::ElementsAre("async", "later", "latest", "sync"));
  for (const std::string name :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    EXPECT_EQ(SumFile(folder / "sync/" + name), SumFile(folder / "async/" + name)) << name;
    EXPECT_NE(SumFile(folder / "sync/" + name), SumFile(folder / "later/" + name)) << name;
  }
}

// One rank fails because its file name contains a slash, so the file cannot be created.
TEST(CheckpointWriterTest, EveryRankThrowsFailureOfOneRank) {
  for (const bool background : {false, true}) {
    const TempDir folder;
    const auto errors = RunRanks(3, [&](const ProcessGroup& group) {
      CheckpointFolder target(folder.path());
      CheckpointWriter writer(group, target, "job/1");
      writer.Save(ContentOf(group, 1), "good", 1);
      CheckpointContent content = ContentOf(group, 2);
      if (group.rank() == 1) content.files[0].name = "no/such";
      if (background) {
        writer.SaveInBackground(content, "bad", 1);
        writer.Wait();
      } else {
        writer.Save(content, "bad", 1);
      }
    });
    for (const std::exception_ptr& error : errors) {
      EXPECT_THAT(TextOf(error), AllOf(HasSubstr("the checkpoint bad is not saved: rank 1: "),
                                       HasSubstr("/no/such"), HasSubstr("No such file")));
    }
    EXPECT_THAT(Names(folder.path()), testing::ElementsAre("good", "latest"));
    ExpectHolds(folder.path(), "", 1, 1);
  }
}

// The store must not determine paths, because any process that can connect to the store can write
// into it.
TEST(CheckpointWriterTest, PutsNoPathIntoTheStore) {
  const TempDir folder;
  ExpectNoErrors(RunRanks(2, [&](const ProcessGroup& group) {
    CheckpointFolder target(folder.path());
    CheckpointWriter writer(group, target, "job/1");
    writer.Save(ContentOf(group, 1), "a", 9);
    for (const std::string key : {"folder", "end"}) {
      const std::vector<uint8_t> said = group.store()->get("checkpoint/0/" + key);
      EXPECT_EQ(std::string(said.begin(), said.end()), "=") << key;
    }
    group.Barrier();
  }));
}

TEST(CheckpointWriterTest, FailsIfOneRankWritesToAnotherFolder) {
  const TempDir folder, elsewhere;
  fs::create_directories(CheckpointFolder(elsewhere.path()).BegunPath("bad", "checkpoint/1/job/1"));
  const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
    CheckpointFolder good(folder.path()), bad(group.rank() == 1 ? elsewhere.path() : good.path());
    CheckpointWriter(group, good, "job/1").Save(ContentOf(group, 1), "good", 9);
    CheckpointWriter(group, bad, "job/1").Save(ContentOf(group, 2), "bad", 9);
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(TextOf(error),
                AllOf(HasSubstr("the checkpoint bad is not saved: "),
                      HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("No such file")));
  }
  EXPECT_THAT(Names(folder.path()), testing::ElementsAre("good", "latest"));
  ExpectHolds(folder.path(), "", 2, 1);
}

// The lease can be lost during a save, because a process that takes the folder over removes
// unfinished saves.
TEST(CheckpointWriterTest, ReportsLeaseLostDuringSave) {
  const TempDir folder, elsewhere;
  const FolderLease others(elsewhere.path(), ThisProcess("other", 1));
  const auto begun = [&] {
    for (const std::string& name : Names(folder.path())) {
      if (name.starts_with("tmp-a-")) return folder / name;
    }
    return std::string();
  };
  const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
    CheckpointFolder target(folder.path());
    if (group.rank() == 0) {
      target.UseLease(std::make_shared<FolderLease>(folder.path(), ThisProcess("ours", 1)));
    } else {
      const Deadline deadline = Deadline::After(std::chrono::seconds(60));
      while (begun().empty() && !deadline.Expired()) std::this_thread::yield();
      fs::copy_file(elsewhere / kLeaseFile, folder / kLeaseFile,
                    fs::copy_options::overwrite_existing);
      fs::remove_all(begun());
    }
    CheckpointWriter(group, target, "job/1").Save(ContentOf(group, 1), "a", 1);
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(TextOf(error),
                AllOf(HasSubstr("no longer has the lease"), HasSubstr("job other on ")));
  }
}

TEST(CheckpointWriterTest, EveryRankFailsIfFolderCannotBeMade) {
  const TempDir folder;
  const auto errors = RunRanks(2, [&](const ProcessGroup& group) {
    CheckpointFolder target(folder / "missing");
    CheckpointWriter(group, target, "job/1").Save(ContentOf(group, 1), "a", 1);
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_THAT(TextOf(error), HasSubstr("missing/tmp-a-"));
  }
}

}  // namespace
}  // namespace dslaunch::checkpoint_writer_test
