#include "proto/contract/job_paths.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace dslaunch::job_paths_test {
namespace {

constexpr uid_t kNobodys = 4'000'000'001;  // no account has this uid

TEST(JobPathsTest, JobsFolderIsBelowTheUsersHome) {
  const TempDir home;
  const uid_t user = ::geteuid();
  EXPECT_EQ(JobsFolder("/x", home.path().c_str(), user), "/x/dslaunch/jobs");
  EXPECT_EQ(JobsFolder(nullptr, home.path().c_str(), user), home / ".local/state/dslaunch/jobs");
  EXPECT_EQ(JobsFolder("relative", home.path().c_str(), user), home / ".local/state/dslaunch/jobs");
}

TEST(JobPathsTest, IgnoresHomeOfAnotherUser) {
  const TempDir home;
  EXPECT_EQ(JobsFolder(nullptr, home.path().c_str(), kNobodys),
            "/tmp/dslaunch-4000000001/dslaunch/jobs");
}

TEST(JobPathsTest, FallsBackToAccountsHomeThenTmp) {
  EXPECT_EQ(JobsFolder(nullptr, nullptr, kNobodys), "/tmp/dslaunch-4000000001/dslaunch/jobs");
  const passwd* const account = ::getpwuid(::geteuid());
  if (account == nullptr || ::access(account->pw_dir, W_OK) != 0) GTEST_SKIP() << "has no home";
  EXPECT_EQ(JobsFolder(nullptr, nullptr, ::geteuid()),
            std::string(account->pw_dir) + "/.local/state/dslaunch/jobs");
}

}  // namespace
}  // namespace dslaunch::job_paths_test
