#include "agent/node/pmix_helper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/deadline.h"
#include "base/proc_text.h"
#include "base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::pmix_helper_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

pb::Node NodeOf(const std::string& name, uint32_t slots) {
  pb::Node node;
  node.set_name(name);
  node.set_slots(slots);
  return node;
}

pb::Assignment AssignmentOf(uint32_t node_rank, uint32_t first_rank, uint32_t world_size) {
  pb::Assignment assignment;
  assignment.set_node_rank(node_rank);
  assignment.set_first_rank(first_rank);
  assignment.set_world_size(world_size);
  return assignment;
}

TEST(PmixJobTest, NodesAndTheirRanks) {
  const Result<pb::PmixJob> job =
      MakePmixJob("j-1", 3, AssignmentOf(1, 2, 5), {NodeOf("a.b", 2), NodeOf("c", 3)});
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->nspace(), "j-1.3");
  EXPECT_EQ(job->node_rank(), 1u);
  EXPECT_EQ(job->nodes(0).name(), "a.b");
  EXPECT_EQ(job->nodes(1).first_rank(), 2u);
  EXPECT_EQ(job->nodes(1).ranks(), 3u);
}

TEST(PmixJobTest, NamesThatPmixCannotTake) {
  for (const auto& names : {std::pair("a", "a"), {"a,b", "c"}, {"fd00::1", "c"}, {"", "c"}}) {
    const Result<pb::PmixJob> job = MakePmixJob("j", 1, AssignmentOf(0, 0, 2),
                                                {NodeOf(names.first, 1), NodeOf(names.second, 1)});
    ASSERT_TRUE(job.ok());
    EXPECT_EQ(job->nodes(0).name() + " " + job->nodes(1).name(), "node0 node1");
  }
}

TEST(PmixJobTest, AnAssignmentThatDoesNotFit) {
  EXPECT_FALSE(MakePmixJob("j", 1, AssignmentOf(0, 0, 3), {NodeOf("a", 2)}).ok());
  EXPECT_FALSE(MakePmixJob("j", 1, AssignmentOf(1, 0, 2), {NodeOf("a", 2)}).ok());
  EXPECT_FALSE(MakePmixJob("j", 1, AssignmentOf(0, 1, 2), {NodeOf("a", 2)}).ok());
}

TEST(PmixReportTest, WhatAServerMaySendAndWhen) {
  pb::PmixReport clients;
  for (int i = 0; i < 2; ++i)
    clients.mutable_clients()->add_by_local_rank()->add_env("PMIX_RANK=" + std::to_string(i));
  pb::PmixReport aborted;
  aborted.mutable_aborted()->set_rank(1);
  pb::PmixReport failed;
  failed.set_failure("no library");
  EXPECT_TRUE(CheckPmixReport(clients, false, 2).ok());
  EXPECT_TRUE(CheckPmixReport(failed, false, 2).ok());
  EXPECT_TRUE(CheckPmixReport(aborted, true, 2).ok());
  EXPECT_FALSE(CheckPmixReport(clients, true, 2).ok());
  EXPECT_FALSE(CheckPmixReport(failed, true, 2).ok());
  EXPECT_FALSE(CheckPmixReport(aborted, false, 2).ok());
  EXPECT_FALSE(CheckPmixReport({}, false, 2).ok());
  EXPECT_EQ(CheckPmixReport(clients, false, 3).error().message,
            "the environment of more or fewer ranks than there are");
  for (const char* bad : {"", "NAME", "=value"}) {
    *clients.mutable_clients()->mutable_by_local_rank(1)->mutable_env(0) = bad;
    EXPECT_EQ(CheckPmixReport(clients, false, 2).error().message, "an environment that is none")
        << bad;
  }
}

// Programs in place of dslaunch-pmix.
class PmixHelperTest : public ::testing::Test {
 protected:
  // Until `done`, 20 s at most.
  template <class Done>
  void RunUntil(Done done) {
    const Clock::time_point limit = Clock::now() + milliseconds(20'000);
    while (!done() && Clock::now() < limit) {
      loop_.restart();
      loop_.run_for(milliseconds(20));
    }
    EXPECT_TRUE(done());
  }
  Result<std::unique_ptr<PmixHelper>> Start(const std::string& script, bool in_memory = false) {
    PmixHelperOptions options;
    const std::string path = dir_.path() + "/server";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path.c_str(), 0700);
    if (in_memory)
      options.server = ReadWhole("/bin/false").value_or("");
    else
      options.server_path = path;
    options.job.set_nspace("j.1");
    options.environment = {"TMPDIR=" + dir_.path(), "PATH=/bin:/usr/bin"};
    options.log_path = dir_.path() + "/pmix.log";
    return PmixHelper::Start(loop_, std::move(options),
                             {.on_started =
                                  [this](const Result<pb::PmixClients>& clients) {
                                    outcome_ = clients.ok() ? "started" : clients.error().message;
                                  },
                              .on_lost = [this](const std::string& why) { lost_ = why; },
                              .on_aborted = nullptr});
  }
  bool HasFolder() const {
    return std::ranges::any_of(
        std::filesystem::directory_iterator(dir_.path()), [](const auto& entry) {
          return entry.path().filename().string().starts_with("dslaunch-pmix-");
        });
  }

  TempDir dir_;
  asio::io_context loop_{1};
  std::string outcome_;
  std::string lost_;
};

TEST_F(PmixHelperTest, AServerThatDoesNotStartSaysWhyInItsLog) {
  const auto helper = Start("echo 'libpmix.so.2: cannot open shared object file' >&2; exit 127");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  RunUntil([this] { return !outcome_.empty(); });
  EXPECT_THAT(outcome_, HasSubstr("does not start: libpmix.so.2: cannot open shared object file"));
  EXPECT_THAT(lost_, IsEmpty());
}

TEST_F(PmixHelperTest, ItEndsWithItsOwnerAndLeavesNoFolder) {
  auto helper = Start("cat >/dev/null; echo $$ >&2");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  EXPECT_TRUE(HasFolder());
  helper->reset();
  RunUntil([this] { return !HasFolder(); });
  EXPECT_THAT(outcome_ + lost_, IsEmpty());
}

TEST_F(PmixHelperTest, OneThatHangsIsKilled) {
  auto helper = Start("trap '' TERM; exec sleep 1000");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  helper->reset();
  RunUntil([this] { return !HasFolder(); });
}

TEST_F(PmixHelperTest, AServerInMemoryIsStarted) {
  const auto helper = Start("", /*in_memory=*/true);  // a program that only ends
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  RunUntil([this] { return !outcome_.empty(); });
  EXPECT_THAT(outcome_, HasSubstr("does not start: "));
}

// Of servers that were killed together with their agents.
TEST_F(PmixHelperTest, FoldersThatNobodyHoldsAreRemoved) {
  const std::string stale = dir_.path() + "/dslaunch-pmix-stale";
  const std::string held = dir_.path() + "/dslaunch-pmix-held";
  const std::string fresh = dir_.path() + "/dslaunch-pmix-fresh";
  for (const std::string& path : {stale, held, fresh}) std::filesystem::create_directory(path);
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const std::string& path : {stale, held}) std::filesystem::last_write_time(path, long_ago);
  const UniqueFd lock(::open(held.c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(::flock(lock.get(), LOCK_SH), 0);
  const auto helper = Start("cat >/dev/null");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(held));
  EXPECT_TRUE(std::filesystem::exists(fresh));
}

TEST_F(PmixHelperTest, OneThatIsNotThere) {
  PmixHelperOptions options;
  options.server_path = dir_.path() + "/none";
  options.environment = {"TMPDIR=" + dir_.path()};
  options.log_path = dir_.path() + "/pmix.log";
  EXPECT_FALSE(PmixHelper::Start(loop_, std::move(options), {}).ok());
  EXPECT_FALSE(HasFolder());
  EXPECT_FALSE(PmixHelper::Start(loop_, PmixHelperOptions(), {}).ok());
}

}  // namespace
}  // namespace dslaunch::pmix_helper_test
