#include "proto/contract/old_jobs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace dslaunch::old_jobs_test {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kNow = 1'796'000'000;  // 2026-11-29
constexpr char kOldJob[] = "20260101-000000-abcdef";

TEST(IsOldJobTest, ReadsTheDateOfAJobsName) {
  EXPECT_TRUE(IsOldJob(kOldJob, kNow));
  EXPECT_TRUE(IsOldJob("20260829-000000-abcdef", kNow));
  EXPECT_FALSE(IsOldJob("20260910-000000-abcdef", kNow));
  for (const char* name : {"", "mine", "20260101", "20260101-000000-", "2026010100000000-abcdef",
                           "x0260101-000000-abcdef"})
    EXPECT_FALSE(IsOldJob(name, kNow)) << name;
}

class RemoveOldJobsTest : public testing::Test {
 protected:
  // Makes a job's folder that contains one file. All were last changed at `when`.
  void Make(const std::string& job, std::time_t when) {
    const std::string folder = jobs_ / job;
    fs::create_directories(folder + "/nodes/n");
    std::ofstream(folder + "/nodes/n/agent.log") << "x";
    for (const char* below : {"/nodes/n/agent.log", "/nodes/n", "/nodes", ""}) {
      const timespec times[2] = {{when, 0}, {when, 0}};
      ::utimensat(AT_FDCWD, (folder + below).c_str(), times, 0);
    }
  }
  bool Has(const std::string& job) const { return fs::exists(jobs_ / job); }

  TempDir jobs_;
  std::time_t long_ago_ = kNow - 100 * 86'400;
};

TEST_F(RemoveOldJobsTest, RemovesJobsUnchangedFor90Days) {
  Make(kOldJob, long_ago_);
  Make("20260102-000000-running", kNow);  // has a recent change, so the job may still run
  Make("20261101-000000-recent", long_ago_);
  Make("mine", long_ago_);
  EXPECT_EQ(RemoveOldJobs(jobs_.path(), kNow, 10, [](const std::string&) { return true; }), 1u);
  EXPECT_FALSE(Has(kOldJob));
  for (const char* job : {"20260102-000000-running", "20261101-000000-recent", "mine"})
    EXPECT_TRUE(Has(job)) << job;
}

TEST_F(RemoveOldJobsTest, KeepsExceptedJobsAndLimitsRemovals) {
  for (const char* job : {"20260101-000000-a", "20260101-000000-b", "20260101-000000-c"})
    Make(job, long_ago_);
  const auto may_go = [](const std::string& job) { return !job.ends_with('a'); };
  EXPECT_EQ(RemoveOldJobs(jobs_.path(), kNow, 1, may_go), 1u);
  EXPECT_TRUE(Has("20260101-000000-a"));
  EXPECT_FALSE(Has("20260101-000000-b"));
  EXPECT_TRUE(Has("20260101-000000-c"));
  EXPECT_EQ(RemoveOldJobs(jobs_ / "missing", kNow, 1, may_go), 0u);
}

}  // namespace
}  // namespace dslaunch::old_jobs_test
