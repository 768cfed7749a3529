#include "trainer/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/agreement.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch::checkpoint_folder_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using DecisionKind = ResumeDecision::Kind;
using RequestKind = ResumeRequest::Kind;

class CheckpointFolderTest : public testing::Test {
 protected:
  CheckpointFolderTest() { folder_.Make(); }

  void Save(int64_t step, const std::string& run = "run", const std::string& job = "job") {
    Manifest m;
    m.run_id = run;
    m.job_id = job;
    m.position.step = step;
    m.world_size = 1;
    const std::string begun = folder_.BegunPath(TagOf(step), "save");
    folder_.Begin(begun);
    const auto weight = static_cast<float>(step);
    m.files = {{"w.safetensors",
                WriteSafetensors(begun + "/w.safetensors", {{"w", "F32", {1}, &weight}})}};
    m.tensors = {{"w", "F32", {1}, {{Shard::Whole(1), "w.safetensors"}}}};
    folder_.Commit(begun, TagOf(step), m);
    folder_.Settle(TagOf(step), m.run_id, 2);
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  std::string File(int64_t step, const std::string& name) const {
    return folder_.path() + "/" + TagOf(step) + "/" + name;
  }

  // Returns the decision of a new run about where to resume.
  ResumeDecision Choose(const ResumeRequest& request = {}) const {
    return CheckpointFolder(folder_.path()).Choose(request);
  }

  const TempDir temp_;
  CheckpointFolder folder_{temp_ / "a/b"};
};

TEST_F(CheckpointFolderTest, KeepsLastTwoCheckpointsOfEachRun) {
  for (int64_t step = 1; step <= 4; ++step) Save(step);
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step_000003", "step_000004"));
  Save(1, "another run");
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step_000001", "step_000003", "step_000004"));
  std::ifstream latest(folder_.path() + "/latest");
  std::string tag;
  latest >> tag;
  EXPECT_EQ(tag, "step_000001");
  EXPECT_EQ(Choose().checkpoint->tag, "step_000001") << "the newest is the one saved last";
}

TEST_F(CheckpointFolderTest, ReplacesCheckpointWithSameTag) {
  Save(1);
  const auto first = Choose().checkpoint->manifest.files[0].sum;
  Save(1, "another run");
  EXPECT_EQ(Choose().checkpoint->manifest.run_id, "another run");
  EXPECT_EQ(Choose().checkpoint->manifest.files[0].sum, first);
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step_000001"));
}

TEST_F(CheckpointFolderTest, IgnoresAndRemovesInterruptedSave) {
  Save(1);
  const std::string begun = folder_.BegunPath("step_000002", "save");
  folder_.Begin(begun);
  std::ofstream(begun + "/w.safetensors") << "half";
  EXPECT_EQ(Choose().checkpoint->tag, "step_000001");
  EXPECT_THAT(folder_.RemoveLeftovers(), ElementsAre(fs::path(begun).filename().string()));
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step_000001"));
}

// If the file system cannot exchange names, a replaced checkpoint briefly has no tag. So a crash at
// that moment leaves the checkpoint under a temporary name.
TEST_F(CheckpointFolderTest, RestoresReplacedCheckpointIfTagIsFree) {
  Save(1);
  Save(2);
  fs::rename(folder_.path() + "/step_000002",
             folder_.path() + "/tmp-.replaced-step_000002-0123abcd");
  EXPECT_THAT(folder_.RemoveLeftovers(), IsEmpty());
  EXPECT_EQ(Choose().checkpoint->tag, "step_000002");
  fs::copy(folder_.path() + "/step_000002", folder_.path() + "/tmp-.replaced-step_000002-0123abcd",
           fs::copy_options::recursive);
  EXPECT_THAT(folder_.RemoveLeftovers(), ElementsAre("tmp-.replaced-step_000002-0123abcd"));
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step_000001", "step_000002"));
  fs::create_directory(folder_.path() + "/tmp-.replaced-..-0123abcd");
  EXPECT_THAT(folder_.RemoveLeftovers(), ElementsAre("tmp-.replaced-..-0123abcd"));
}

// The commit checks all files, because a rank may have written to another folder, or less than it
// reported.
TEST_F(CheckpointFolderTest, RefusesCommitWithMissingOrChangedFiles) {
  const std::vector<std::pair<std::string, void (*)(const std::string&)>> mistakes = {
      {"No such file", [](const std::string& file) { fs::remove(file); }},
      {"bytes of", [](const std::string& file) { fs::resize_file(file, 20); }},
      {"cannot be read",
       [](const std::string& file) {
         fs::rename(file, file + ".elsewhere");
         fs::create_symlink(file + ".elsewhere", file);
       }},
      {"cannot be read",
       [](const std::string& file) {
         fs::remove(file);
         fs::create_directory(file);
       }},
  };
  Save(1);
  for (const auto& [words, mistake] : mistakes) {
    SCOPED_TRACE(words);
    const std::string begun = folder_.BegunPath("step_000002", "save");
    folder_.Begin(begun);
    const float weight = 2;
    Manifest m;
    m.world_size = 1;
    m.files = {{"w.safetensors",
                WriteSafetensors(begun + "/w.safetensors", {{"w", "F32", {1}, &weight}})}};
    m.tensors = {{"w", "F32", {1}, {{Shard::Whole(1), "w.safetensors"}}}};
    mistake(begun + "/w.safetensors");
    try {
      folder_.Commit(begun, "step_000002", m);
      ADD_FAILURE() << "committed a broken checkpoint";
    } catch (const TrainError& error) {
      EXPECT_EQ(error.code(), ExitCode::kIo);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("w.safetensors"), HasSubstr(words)));
    }
    folder_.Abandon(begun);
    EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step_000001"));
  }
}

TEST_F(CheckpointFolderTest, RefusesLinkAsSaveFolder) {
  Manifest m;
  m.world_size = 1;
  fs::create_directory(temp_ / "elsewhere");
  const std::string begun = folder_.BegunPath("step_000001", "save");
  fs::create_directory_symlink(temp_ / "elsewhere", begun);
  EXPECT_THROW(folder_.Begin(begun), TrainError);
  EXPECT_THROW(folder_.Commit(begun, "step_000001", m), TrainError);
}

TEST_F(CheckpointFolderTest, RefusesCommitOfContradictoryRecords) {
  const std::string begun = folder_.BegunPath("step_000001", "save");
  folder_.Begin(begun);
  const float weight = 2;
  Manifest m;
  m.world_size = 1;
  m.files = {
      {"w.safetensors", WriteSafetensors(begun + "/w.safetensors", {{"w", "F32", {1}, &weight}})}};
  m.files.push_back(m.files[0]);
  EXPECT_THROW(folder_.Commit(begun, "step_000001", m), TrainError);
  m.files.pop_back();
  m.files[0].name = "../w.safetensors";
  EXPECT_THROW(folder_.Commit(begun, "step_000001", m), TrainError);
  EXPECT_FALSE(fs::exists(folder_.path() + "/step_000001"));
}

TEST_F(CheckpointFolderTest, RefusesSaveAfterLosingLease) {
  const auto lease = std::make_shared<FolderLease>(folder_.path(), ThisProcess("job", 1));
  folder_.UseLease(lease);
  Save(1);
  const FolderLease later(folder_.path(), ThisProcess("job", 2));
  EXPECT_THROW(Save(2), TrainError);
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "lease.json", "step_000001"));
}

TEST_F(CheckpointFolderTest, ReadLatestNeitherBlocksNorReadsLargeFiles) {
  Save(1);
  const std::string latest = folder_.path() + "/latest";
  fs::remove(latest);
  ASSERT_EQ(mkfifo(latest.c_str(), 0600), 0);
  EXPECT_EQ(folder_.ReadLatest(), "") << "does not wait for a pipe";
  fs::remove(latest);
  std::ofstream(latest) << std::string(100'000, 'a');
  EXPECT_LT(folder_.ReadLatest().size(), 1000u);
}

TEST_F(CheckpointFolderTest, ThrowsIfFolderCannotBeListed) {
  const std::string file = temp_.Write("file", "");
  try {
    CheckpointFolder(file).Choose({});
    ADD_FAILURE() << "a run would start at step 1";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(file));
  }
  EXPECT_EQ(CheckpointFolder(temp_ / "none").Choose({}).kind, DecisionKind::kFresh);
}

TEST_F(CheckpointFolderTest, SkipsDamagedCheckpointAndNamesFile) {
  const std::vector<std::pair<std::string, void (*)(const std::string&)>> damages = {
      {"w.safetensors", [](const std::string& file) { fs::remove(file); }},
      {"w.safetensors", [](const std::string& file) { fs::resize_file(file, 20); }},
      {"w.safetensors",
       [](const std::string& file) {
         std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
         stream.seekp(-1, std::ios::end);
         stream.put('\x7f');
       }},
      {"manifest.json", [](const std::string& file) { fs::remove(file); }},
      {"manifest.json", [](const std::string& file) { fs::resize_file(file, 50); }},
  };
  Save(1);
  for (const auto& [name, damage] : damages) {
    Save(2);
    damage(File(2, name));
    const ResumeDecision decision = Choose();
    ASSERT_EQ(decision.kind, DecisionKind::kResume) << decision.reason;
    EXPECT_EQ(decision.checkpoint->tag, "step_000001");
    EXPECT_THAT(decision.reason, HasSubstr("skipped step_000002"));
    EXPECT_THAT(decision.reason, HasSubstr(name));
  }
}

TEST_F(CheckpointFolderTest, RefusesFreshStartIfEveryCheckpointIsDamaged) {
  EXPECT_EQ(Choose().kind, DecisionKind::kFresh);
  Save(1);
  fs::remove(File(1, "w.safetensors"));
  EXPECT_EQ(Choose().kind, DecisionKind::kRefused);
  EXPECT_THAT(Choose().reason, HasSubstr("--resume none"));
  EXPECT_EQ(Choose({.kind = RequestKind::kNone, .tag = "", .job_id = ""}).kind,
            DecisionKind::kFresh);
  const ResumeDecision named = Choose({.kind = RequestKind::kTag, .tag = "step_7", .job_id = ""});
  EXPECT_EQ(named.kind, DecisionKind::kRefused);
  EXPECT_THAT(named.reason, HasSubstr("step_000001"));
}

// A damaged checkpoint is not counted, because otherwise the last good one would be removed in its
// place.
TEST_F(CheckpointFolderTest, DoesNotCountDamagedCheckpointAsKept) {
  Save(1);
  Save(2);
  fs::resize_file(File(2, "w.safetensors"), 20);
  CheckpointFolder next(folder_.path());
  ASSERT_EQ(next.Choose({}).checkpoint->tag, "step_000001");
  folder_ = next;
  Save(3);
  EXPECT_THAT(Names(), UnorderedElementsAre("latest", "step_000001", "step_000002", "step_000003"));
}

std::vector<std::string> Order(const ResumeRequest& request) {
  std::vector<Checkpoint> whole;
  for (const auto& [tag, serial, job] :
       {std::tuple("old", 1, "a"), std::tuple("mine", 3, "b"), std::tuple("mine_too", 2, "b")}) {
    Manifest m;
    m.serial = serial;
    m.job_id = job;
    whole.push_back({"", tag, m});
  }
  std::vector<std::string> tags;
  for (const Checkpoint& one : OrderCandidates(request, whole)) tags.push_back(one.tag);
  return tags;
}

TEST(OrderCandidatesTest, RestartPrefersOwnCheckpoints) {
  EXPECT_THAT(Order({RequestKind::kAuto, "", "b", false}), ElementsAre("mine", "mine_too", "old"));
  EXPECT_THAT(Order({RequestKind::kNone, "", "b", false}), IsEmpty());
  EXPECT_THAT(Order({RequestKind::kNone, "", "b", true}), ElementsAre("mine", "mine_too"));
  EXPECT_THAT(Order({RequestKind::kNone, "", "c", true}), IsEmpty());
  EXPECT_THAT(Order({RequestKind::kTag, "old", "b", false}), ElementsAre("old"));
  EXPECT_THAT(Order({RequestKind::kTag, "old", "b", true}), ElementsAre("mine", "mine_too", "old"));
}

TEST(OrderCandidatesTest, PrefersRunStartedBySameCommand) {
  const auto order = [](RequestKind kind, const std::string& started_by) {
    std::vector<Checkpoint> whole;
    for (const auto& [tag, serial, key] :
         {std::tuple("started", 1, "x"), std::tuple("started_later", 2, "x"),
          std::tuple("newest", 3, "")}) {
      Manifest m;
      m.serial = serial;
      m.started_by = key;
      whole.push_back({"", tag, m});
    }
    std::vector<std::string> tags;
    for (const Checkpoint& one : OrderCandidates(
             {.kind = kind, .tag = "newest", .job_id = "", .started_by = started_by}, whole)) {
      tags.push_back(one.tag);
    }
    return tags;
  };
  EXPECT_THAT(order(RequestKind::kNone, "x"), ElementsAre("started_later", "started"));
  EXPECT_THAT(order(RequestKind::kNone, "y"), IsEmpty());
  EXPECT_THAT(order(RequestKind::kTag, "x"), ElementsAre("started_later", "started", "newest"));
  EXPECT_THAT(order(RequestKind::kAuto, "x"), ElementsAre("started_later", "started", "newest"));
  EXPECT_THAT(order(RequestKind::kAuto, ""), ElementsAre("newest", "started_later", "started"));
}

TEST(TagSuffixTest, AvoidsLaterTagsOfOtherRuns) {
  const auto checkpoint = [](const std::string& tag, int64_t step, const std::string& run) {
    Manifest m;
    m.position.step = step;
    m.run_id = run;
    return Checkpoint{"", tag, m};
  };
  const std::string own = "0123456789abcdef";
  const Checkpoint plain = checkpoint("step_000005", 5, own);
  const Checkpoint named = checkpoint("step_000005-01234567", 5, own);
  const Checkpoint other = checkpoint("step_000009", 9, "other");
  EXPECT_EQ(TagSuffix({}, own, nullptr), "");
  EXPECT_EQ(TagSuffix({other}, own, nullptr), "-01234567");
  EXPECT_EQ(TagSuffix({plain, other}, own, &plain), "-01234567");
  EXPECT_EQ(TagSuffix({plain, checkpoint("step_000003", 3, "other")}, own, &plain), "");
  EXPECT_EQ(TagSuffix({plain, checkpoint("step_000009-deadbeef", 9, "other")}, own, &plain), "");
  EXPECT_EQ(TagSuffix({named}, own, &named), "-01234567");
}

TEST(DisagreementTest, NamesRanksAndTheirCheckpoints) {
  EXPECT_EQ(Disagreement("/c", {{-1, 0}, {-1, 0}}), "");
  EXPECT_EQ(Disagreement("/c", {{10, 5}, {10, 5}}), "");
  const std::string split = Disagreement("/c", {{-1, 0}, {10, 5}, {10, 5}, {-2, 0}});
  EXPECT_THAT(
      split,
      HasSubstr("/c (rank 0: none; ranks 1, 2: step_000010; rank 3: no complete checkpoint"));
  EXPECT_THAT(Disagreement("/c", {{10, 5}, {10, 6}}), HasSubstr("rank 0: step_000010; rank 1"));
  std::vector<SeenCheckpoint> many(20, {10, 5});
  many.push_back({-1, 0});
  EXPECT_THAT(Disagreement("/c", many), HasSubstr("6, 7 and 12 more: step_000010; rank 20: none"));
}

TEST_F(CheckpointFolderTest, ChoosesByTagElseLatestElseNewestWhole) {
  EXPECT_EQ(CheckpointFolder(temp_ / "none").ChooseTag("").kind, DecisionKind::kFresh);
  EXPECT_EQ(folder_.ChooseTag("").kind, DecisionKind::kFresh);
  EXPECT_EQ(folder_.ChooseTag("best").kind, DecisionKind::kRefused);
  Save(1);
  Save(2);
  const auto latest = [&] { return CheckpointFolder(folder_.path()).ChooseTag(""); };
  EXPECT_EQ(latest().checkpoint->tag, "step_000002");
  std::ofstream(folder_.path() + "/latest") << "step_000001\n";
  EXPECT_EQ(latest().checkpoint->tag, "step_000001");
  fs::resize_file(File(1, "w.safetensors"), 5);
  EXPECT_EQ(latest().checkpoint->tag, "step_000002");
  EXPECT_THAT(latest().reason, HasSubstr("skipped step_000001: "));
  EXPECT_EQ(folder_.ChooseTag("step_000001").kind, DecisionKind::kRefused);
  EXPECT_THAT(folder_.ChooseTag("best").reason, HasSubstr("(complete: step_000001, step_000002)"));
  fs::resize_file(File(2, "w.safetensors"), 5);
  EXPECT_EQ(latest().kind, DecisionKind::kRefused)
      << "a fresh start would discard damaged checkpoints";
}

TEST_F(CheckpointFolderTest, AcceptsPlainFileNamesAsTags) {
  for (const std::string tag : {"global_step5", "best", "step_1", "a b"}) EXPECT_TRUE(IsTag(tag));
  for (const std::string tag :
       {"", ".", "..", "a/b", "/a", "latest", "lease.json", "tmp-a", ".hidden"}) {
    EXPECT_FALSE(IsTag(tag)) << tag;
  }
  EXPECT_FALSE(IsTag(std::string(250, 'a')));
  fs::create_directories(folder_.path() + "/logs");
  EXPECT_TRUE(folder_.List().damaged.empty()) << "another kind of folder";
  fs::create_directories(folder_.path() + "/step_000009");
  ASSERT_EQ(folder_.List().damaged.size(), 1u);
  EXPECT_EQ(folder_.List().damaged[0].tag, "step_000009");
}

}  // namespace
}  // namespace dslaunch::checkpoint_folder_test
