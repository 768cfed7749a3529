#include "cli/session/job_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace dslaunch::job_record_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

JobRecord Sample(const std::string& job_id, int64_t started_unix_ms) {
  JobRecord record;
  record.job_id = job_id;
  record.pid = 4711;
  record.start_ticks = 123456789012;
  record.launcher = Launcher::kSsh;
  record.nodes = {{"alice@node1:2222", "node1", 2222, "alice"}, {"node2", "node2", 0, ""}};
  record.nodes[1].is_here = true;
  record.nodes[1].component = 2;
  record.argv = {"dslaunch", "--num_nodes", "2", "train me.py", "\xff"};
  record.cwd = "/home/alice/a b";
  record.log_dir = "/logs";
  record.started_unix_ms = started_unix_ms;
  return record;
}

TEST(JobRecordTest, ReadsBackRewrittenRecord) {
  const TempDir folder;
  JobRecord record = Sample("j1", 1000);
  ASSERT_TRUE(WriteJobRecord(folder / "state/jobs", record).ok());
  record.ended_unix_ms = 2000;
  record.exit_code = 137;
  ASSERT_TRUE(WriteJobRecord(folder / "state/jobs", record).ok());
  const Result<JobRecord> read = ReadJobRecord(folder / "state/jobs", "j1");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->job_id, "j1");
  EXPECT_EQ(read->pid, 4711);
  EXPECT_EQ(read->start_ticks, 123456789012u);
  EXPECT_EQ(read->launcher, Launcher::kSsh);
  ASSERT_EQ(read->nodes.size(), 2u);
  EXPECT_EQ(read->nodes[0].name, "alice@node1:2222");
  EXPECT_EQ(read->nodes[0].host, "node1");
  EXPECT_EQ(read->nodes[0].port, 2222);
  EXPECT_EQ(read->nodes[0].user, "alice");
  EXPECT_FALSE(read->nodes[0].is_here);
  EXPECT_TRUE(read->nodes[1].is_here);
  EXPECT_EQ(read->nodes[0].component, -1);
  EXPECT_EQ(read->nodes[1].component, 2);
  EXPECT_THAT(read->argv,
              ElementsAre("dslaunch", "--num_nodes", "2", "train me.py", "\xef\xbf\xbd"));
  EXPECT_EQ(read->cwd, "/home/alice/a b");
  EXPECT_EQ(read->log_dir, "/logs");
  EXPECT_EQ(read->started_unix_ms, 1000);
  EXPECT_EQ(read->ended_unix_ms, 2000);
  EXPECT_EQ(read->exit_code, 137);
}

TEST(JobRecordTest, IsReadableByUserOnly) {
  const TempDir folder;
  ASSERT_TRUE(WriteJobRecord(folder / "jobs", Sample("j1", 1000)).ok());
  struct stat status {};
  ASSERT_EQ(stat((folder / "jobs/j1").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((folder / "jobs/j1/job.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(JobRecordTest, ListsOldestFirstAndSkipsInvalidJobs) {
  const TempDir folder;
  EXPECT_TRUE(ListJobRecords(folder / "jobs")->empty());
  for (const auto& [name, started] : {std::pair("b", 3000), {"c", 1000}, {"a", 2000}})
    ASSERT_TRUE(WriteJobRecord(folder / "jobs", Sample(name, started)).ok());
  std::filesystem::create_directory(folder / "jobs/empty");
  std::filesystem::create_directory(folder / "jobs/broken");
  folder.Write("jobs/broken/job.json", R"({"job": 7)");
  std::vector<std::string> names;
  const auto records = ListJobRecords(folder / "jobs");
  ASSERT_TRUE(records.ok()) << records.error().message;
  for (const JobRecord& record : *records) names.push_back(record.job_id);
  EXPECT_THAT(names, ElementsAre("c", "a", "b"));
}

TEST(JobRecordTest, NamesUnreadableRecordWithHint) {
  const TempDir folder;
  const Result<JobRecord> missing = ReadJobRecord(folder / "jobs", "j9");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kBadInput);
  EXPECT_THAT(missing.error().message, HasSubstr("no job j9"));
  std::filesystem::create_directories(folder / "jobs/j1");
  folder.Write("jobs/j1/job.json", "[]");
  const Result<JobRecord> broken = ReadJobRecord(folder / "jobs", "j1");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("jobs/j1/job.json: not the record"));
}

// The record must be trustworthy, because `dslaunch ps` runs its ssh_command.
TEST(JobRecordTest, RefusesRecordThatOthersMayHaveWritten) {
  const TempDir folder;
  ASSERT_TRUE(WriteJobRecord(folder / "jobs", Sample("j1", 1000)).ok());
  const auto refusal = [&] {
    const Result<JobRecord> read = ReadJobRecord(folder / "jobs", "j1");
    return read.ok() ? "" : read.error().message;
  };
  const std::string path = folder / "jobs/j1/job.json";
  EXPECT_EQ(refusal(), "");
  ASSERT_EQ(chmod(path.c_str(), 0622), 0);
  EXPECT_THAT(refusal(), HasSubstr("j1/job.json may be changed by others (mode 0622)"));
  ASSERT_EQ(rename(path.c_str(), (folder / "real").c_str()), 0);
  ASSERT_EQ(symlink((folder / "real").c_str(), path.c_str()), 0);
  EXPECT_THAT(refusal(), HasSubstr("j1/job.json cannot be opened"));
  ASSERT_EQ(chmod((folder / "jobs/j1").c_str(), 0777), 0);
  EXPECT_THAT(refusal(), HasSubstr("/jobs/j1 may be changed by others"));
  ASSERT_EQ(chmod((folder / "jobs").c_str(), 0777), 0);
  const auto records = ListJobRecords(folder / "jobs");
  ASSERT_FALSE(records.ok());
  EXPECT_THAT(records.error().message, HasSubstr("/jobs may be changed by others"));
  EXPECT_THAT(records.error().message, HasSubstr("set XDG_STATE_HOME"));
  EXPECT_FALSE(WriteJobRecord(folder / "jobs", Sample("j2", 1000)).ok());
}

TEST(JobRecordTest, NamesFolderThatCannotBeMade) {
  const TempDir folder;
  folder.Write("file", "");
  const Result<void> written = WriteJobRecord(folder / "file", Sample("j1", 1000));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ExitCode::kIo);
  EXPECT_THAT(written.error().message, HasSubstr("/file"));
}

}  // namespace
}  // namespace dslaunch::job_record_test
