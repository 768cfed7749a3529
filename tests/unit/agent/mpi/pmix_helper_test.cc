#include "agent/mpi/pmix_helper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "tests/support/pmix_job.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::pmix_helper_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PmixReportTest, AcceptsOnlyReportsForTheServersState) {
  pb::PmixReport started;
  started.set_started(true);
  pb::PmixReport aborted;
  aborted.mutable_aborted()->set_rank(1);
  pb::PmixReport failed;
  failed.set_failure("no library");
  pb::PmixReport rank;
  rank.mutable_rank()->set_local_rank(1);
  EXPECT_TRUE(CheckPmixReport(started, false, 2).ok());
  EXPECT_TRUE(CheckPmixReport(failed, false, 2).ok());
  EXPECT_TRUE(CheckPmixReport(aborted, true, 2).ok());
  EXPECT_TRUE(CheckPmixReport(rank, true, 2).ok());
  EXPECT_FALSE(CheckPmixReport(started, true, 2).ok());
  EXPECT_FALSE(CheckPmixReport(failed, true, 2).ok());
  EXPECT_FALSE(CheckPmixReport(aborted, false, 2).ok());
  EXPECT_FALSE(CheckPmixReport(rank, false, 2).ok());
  EXPECT_FALSE(CheckPmixReport({}, false, 2).ok());
  EXPECT_FALSE(CheckPmixReport({}, true, 2).ok());
  EXPECT_FALSE(CheckPmixReport(rank, true, 1).ok());
}

// Runs scripts and other programs in place of dslaunch-pmix.
class PmixHelperTest : public ::testing::Test {
 protected:
  // Runs the loop until `done` returns true. Fails after 20 s.
  template <class Done>
  void RunUntil(Done done) {
    const Clock::time_point limit = Clock::now() + milliseconds(20'000);
    while (!done() && Clock::now() < limit) {
      loop_.restart();
      loop_.run_for(milliseconds(20));
    }
    EXPECT_TRUE(done());
  }
  // Runs a shell script as the server.
  Result<std::unique_ptr<PmixHelper>> Open(const std::string& script) {
    program_ = "#!/bin/sh\n" + script + "\n";
    return OpenProgram(program_);
  }
  Result<std::unique_ptr<PmixHelper>> OpenProgram(std::string_view program,
                                                  const std::string& no_pmix = "") {
    PmixHelperOptions options;
    options.program = program;
    options.no_pmix = no_pmix;
    options.job = PmixJobOf({2}, 0);
    options.environment = {"TMPDIR=" + dir_.path(), "PATH=/bin:/usr/bin"};
    options.log_path = dir_.path() + "/pmix.log";
    return PmixHelper::Open(loop_, std::move(options),
                            {.on_failed = [this](const std::string& why) { failed_ = why; },
                             .on_aborted = nullptr,
                             .on_rank = nullptr});
  }
  // Connects to the server as a rank that uses PMIx does.
  static UniqueFd Connect(const PmixHelper& helper) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    for (const std::string& entry : helper.clients().at(0).environment) {
      if (!entry.starts_with("PMIX_SERVER_URI4=")) continue;
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port =
          htons(static_cast<uint16_t>(std::stoi(entry.substr(entry.rfind(':') + 1))));
      EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
                0);
    }
    return fd;
  }
  bool HasFolder() const {
    return std::ranges::any_of(
        std::filesystem::directory_iterator(dir_.path()), [](const auto& entry) {
          return entry.path().filename().string().starts_with("dslaunch-pmix-");
        });
  }

  TempDir dir_;
  asio::io_context loop_{1};
  std::string program_;
  std::string failed_;
};

TEST_F(PmixHelperTest, StartsNoServerUntilARankConnects) {
  const auto helper = Open("touch " + dir_.path() + "/runs; cat >/dev/null");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  EXPECT_EQ((*helper)->clients().size(), 2u);
  loop_.run_for(milliseconds(50));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/runs"));
  const UniqueFd rank = Connect(**helper);
  RunUntil([this] { return std::filesystem::exists(dir_.path() + "/runs"); });
}

TEST_F(PmixHelperTest, BeginStartsServerWithoutARank) {
  const auto helper = Open("touch " + dir_.path() + "/runs; cat >/dev/null");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  (*helper)->Begin();
  (*helper)->Begin();
  RunUntil([this] { return std::filesystem::exists(dir_.path() + "/runs"); });
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(PmixHelperTest, ReportsLastLineOfServerThatDoesNotStart) {
  const auto helper = Open("echo 'libpmix.so.2: cannot open shared object file' >&2; exit 127");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  (*helper)->Begin();
  RunUntil([this] { return !failed_.empty(); });
  EXPECT_THAT(failed_, HasSubstr("does not start: libpmix.so.2: cannot open shared object file"));
}

TEST_F(PmixHelperTest, FailsPmixRanksWithoutPmixServer) {
  const auto helper = OpenProgram("", "there is no OpenPMIx");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  const UniqueFd scanner = Connect(**helper);
  EXPECT_EQ(::write(scanner.get(), "GET /", 5), 5);
  loop_.run_for(milliseconds(50));
  EXPECT_THAT(failed_, IsEmpty());
  const UniqueFd rank = Connect(**helper);
  EXPECT_EQ(::write(rank.get(), "xjob.1y", 7), 7);
  RunUntil([this] { return !failed_.empty(); });
  EXPECT_EQ(failed_, "there is no OpenPMIx");
}

TEST_F(PmixHelperTest, EndsServerAndRemovesFolderWithItsOwner) {
  auto helper = Open("cat >/dev/null; echo $$ >&2");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  EXPECT_TRUE(HasFolder());
  (*helper)->Begin();
  helper->reset();
  EXPECT_FALSE(HasFolder());
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(PmixHelperTest, KillsServerThatHangs) {
  auto helper = Open("trap '' TERM; exec sleep 1000");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  (*helper)->Begin();
  helper->reset();
  EXPECT_FALSE(HasFolder());
}

// Old folders without a lock belong to servers that were killed together with their agents.
TEST_F(PmixHelperTest, RemovesOldFoldersThatAreNotLocked) {
  const std::string stale = dir_.path() + "/dslaunch-pmix-stale";
  const std::string held = dir_.path() + "/dslaunch-pmix-held";
  const std::string fresh = dir_.path() + "/dslaunch-pmix-fresh";
  for (const std::string& path : {stale, held, fresh}) std::filesystem::create_directory(path);
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (const std::string& path : {stale, held}) std::filesystem::last_write_time(path, long_ago);
  const UniqueFd lock(::open(held.c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(::flock(lock.get(), LOCK_SH), 0);
  const auto helper = Open("cat >/dev/null");
  ASSERT_TRUE(helper.ok()) << helper.error().message;
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(held));
  EXPECT_TRUE(std::filesystem::exists(fresh));
}

}  // namespace
}  // namespace dslaunch::pmix_helper_test
