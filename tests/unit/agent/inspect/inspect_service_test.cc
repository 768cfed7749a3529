#include "agent/inspect/inspect_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/logs/job_logs.h"
#include "proto/wire/job_result.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::inspect_service_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kJob[] = "20260101-000000-abcdef";

class InspectServiceTest : public ::testing::Test {
 protected:
  InspectServiceTest() {
    place_.set_job_id(kJob);
    place_.set_node_name("node1");
    place_.set_log_dir(dir_.path());
  }
  std::string MakeFolder() const {
    const std::string folder = dir_ / (std::string(kJob) + "/nodes/node1");
    std::filesystem::create_directories(folder + "/attempt_1/rank_0");
    return folder;
  }

  TempDir dir_;
  pb::JobPlace place_;
};

TEST_F(InspectServiceTest, ReportsUnknownJobGoneAndOneWithoutResultLost) {
  EXPECT_EQ(LookAtJob(place_).state(), pb::JobSight::GONE);
  MakeFolder();
  EXPECT_EQ(LookAtJob(place_).state(), pb::JobSight::LOST);
}

TEST_F(InspectServiceTest, ReadsResultThatItsUserWrote) {
  const std::string folder = MakeFolder();
  pb::NodeDone done;
  done.set_completed(true);
  done.mutable_cause()->set_kind(pb::Cause::WORKER_SIGNAL);
  done.mutable_cause()->set_exit_code(137);
  done.add_left()->set_pid(99);
  ASSERT_TRUE(WriteJobResult(folder, MakeJobResult(kJob, {}, done)).ok());
  const pb::JobSight sight = LookAtJob(place_);
  EXPECT_EQ(sight.state(), pb::JobSight::ENDED);
  EXPECT_EQ(sight.result().exit_code(), 137);
  EXPECT_EQ(sight.result().done().left(0).pid(), 99);
  struct stat status {};
  ASSERT_EQ(::stat((folder + "/result.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(InspectServiceTest, IgnoresInvalidResult) {
  dir_.Write(MakeFolder().substr(dir_.path().size() + 1) + "/result.json", "{\"exit_code\": ");
  EXPECT_EQ(LookAtJob(place_).state(), pb::JobSight::LOST);
}

TEST_F(InspectServiceTest, RemovesOnlyTheJobsFolder) {
  MakeFolder();
  dir_.Write("other", "");
  EXPECT_EQ(RemoveJob(place_).refusal(), "");
  EXPECT_FALSE(std::filesystem::exists(dir_ / kJob));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "other"));
  EXPECT_EQ(RemoveJob(place_).refusal(), "") << "what is gone need not be removed";
}

TEST_F(InspectServiceTest, RejectsNamesThatLeaveTheFolder) {
  MakeFolder();
  for (const char* name : {"..", ".", ""}) {
    place_.set_node_name(name);
    EXPECT_EQ(LookAtJob(place_).state(), pb::JobSight::GONE) << name;
    RemoveJob(place_);
  }
  place_.set_node_name("node1");
  for (const char* job : {"../x", "..", "", "ABC", "a b"}) {
    place_.set_job_id(job);
    EXPECT_EQ(LookAtJob(place_).state(), pb::JobSight::GONE) << job;
    RemoveJob(place_);
  }
  EXPECT_TRUE(std::filesystem::exists(dir_ / (std::string(kJob) + "/nodes/node1/attempt_1")));
}

TEST(JobResultTest, SuccessNeedsAllRanksAndTeardown) {
  pb::NodeDone done;
  EXPECT_EQ(MakeJobResult("j", {}, done).exit_code(), 75) << "nobody said that all are empty";
  done.set_completed(true);
  done.set_teardown_complete(true);
  EXPECT_EQ(MakeJobResult("j", {}, done).exit_code(), 0);
  done.add_left();
  EXPECT_EQ(MakeJobResult("j", {}, done).exit_code(), 75);
}

TEST(JobResultTest, ExitCodeIs85IfAllRanksSavedOnRequest) {
  pb::NodeDone done;
  done.set_completed(true);
  done.set_teardown_complete(true);
  done.mutable_cause()->set_kind(pb::Cause::INTERRUPTED);
  done.mutable_cause()->set_exit_code(143);
  EXPECT_EQ(MakeJobResult("j", {}, done).exit_code(), 143);
  done.set_saved(true);
  EXPECT_EQ(MakeJobResult("j", {}, done).exit_code(), 85);
  done.mutable_cause()->set_kind(pb::Cause::NODE_LOST);
  done.mutable_cause()->set_exit_code(69);
  EXPECT_EQ(MakeJobResult("j", {}, done).exit_code(), 69) << "nobody asked for that";
}

TEST(JobResultTest, FinalCauseReplacesTheFirst) {
  pb::Cause first;
  first.set_kind(pb::Cause::WORKER_EXIT);
  first.set_exit_code(1);
  pb::NodeDone done;
  EXPECT_EQ(MakeJobResult("j", first, done).exit_code(), 1);
  done.set_completed(true);
  done.mutable_cause()->set_kind(pb::Cause::WORKER_EXIT);
  done.mutable_cause()->set_exit_code(9);
  EXPECT_EQ(MakeJobResult("j", first, done).exit_code(), 9);
}

TEST(JobLogsTest, ListsLogsByAttemptAndRankOnly) {
  const TempDir dir;
  for (const char* folder : {"attempt_10/rank_0", "attempt_2/rank_11", "attempt_2/rank_3",
                             "attempt_x/rank_0", "attempt_2/other"})
    std::filesystem::create_directories(dir / folder);
  std::vector<std::pair<uint64_t, uint32_t>> found;
  for (const JobLog& log : ListJobLogs(dir.path())) {
    if (!log.is_stderr) found.emplace_back(log.attempt, log.rank);
  }
  EXPECT_THAT(found, ElementsAre(Pair(2, 3), Pair(2, 11), Pair(10, 0)));
}

TEST(JobLogsTest, FindsTimeByTheLastMarkBeforeIt) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "attempt_1/rank_3");
  dir.Write("attempt_1/marks", "1000 3 10 1\n1000 4 99 99\n2000 3 20\n3000 3 30 5\n");
  const JobLog out = {1, 3, false, dir / "attempt_1/rank_3/stdout.log"};
  const JobLog err = {1, 3, true, dir / "attempt_1/rank_3/stderr.log"};
  EXPECT_EQ(OffsetAt(out, 999), 0u);
  EXPECT_EQ(OffsetAt(out, 1000), 10u);
  EXPECT_EQ(OffsetAt(out, 2500), 10u) << "the line between was cut by a full disk";
  EXPECT_EQ(OffsetAt(err, 9000), 5u);
  EXPECT_EQ(OffsetAt({1, 7, false, dir / "attempt_2/rank_7/stdout.log"}, 9000), 0u);
}

}  // namespace
}  // namespace dslaunch::inspect_service_test
