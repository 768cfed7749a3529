#include "cli/call_back/call_back_transport.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace dslaunch::call_back_transport_test {
namespace {

using testing::HasSubstr;

// Uses a script as the launcher, whose last argument is the script for each node.
class CallBackTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    std::ofstream(folder_.path() + "/agent") << "an agent";
  }

  // Connects to a node whose agent has printed its key, and then runs `commands`. Returns the
  // error; the deadline is 20 s.
  std::string ErrorOf(const std::string& commands) {
    return ErrorOf(Launcher::kOpenMpi,
                   "echo \"DSLAUNCH-KEY $n 0 " + std::string(64, 'a') + "\"\n" + commands);
  }

  // Connects to a node that `launcher` starts by `commands`. Returns the error; the deadline is 20
  // s.
  std::string ErrorOf(Launcher launcher, const std::string& commands) {
    const std::string program = folder_.path() + "/program";
    std::ofstream(program)
        << "#!/bin/sh\n"
           "for script; do :; done\n"
           "n=$(printf %s \"$script\" | sed -n 's/.*--nonce \\([0-9a-f]*\\).*/\\1/p')\n" +
               commands + "\n";
    ::chmod(program.c_str(), 0700);
    CallBackTransport::Options options;
    options.agent.path = folder_.path() + "/agent";
    options.agent.build_id = "7e57";
    options.program = {launcher, {program}};
    const NodeTarget node{"node1", "node1", 0, "", 0};
    options.nodes = {node};
    const Result<std::unique_ptr<NodeLink>> link =
        CallBackTransport(std::move(options)).Connect(node, Deadline::After(milliseconds(20'000)));
    return link.ok() ? "" : link.error().message;
  }

  TempDir folder_;
};

TEST_F(CallBackTransportTest, StopsWaitingForAgentThatEnded) {
  const auto began = Clock::now();
  const std::string error =
      ErrorOf("echo no memory >&2; sleep 0.5; echo \"DSLAUNCH-ENDED $n 0 1\"; exec sleep 60");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("it ended before it connected to this machine"));
  EXPECT_THAT(error, HasSubstr("no memory"));
}

TEST_F(CallBackTransportTest, StopsWaitingForAgentOfEndedLauncher) {
  const auto began = Clock::now();
  const std::string error = ErrorOf("echo node1 was killed >&2; exit 9");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("it ended before it connected to this machine"));
  EXPECT_THAT(error, HasSubstr("node1 was killed"));
}

// If the process that calls back was killed, only pdsh reports its end.
TEST_F(CallBackTransportTest, StopsWaitingForAgentWhoseEndPdshReports) {
  const auto began = Clock::now();
  const std::string error =
      ErrorOf(Launcher::kPdsh,
              "echo \"DSLAUNCH-KEY $n 0 " + std::string(64, 'a') +
                  "\"; echo no memory >&2; sleep 0.5\n"
                  "echo 'pdsh@here: node1: ssh exited with exit code 255' >&2; exec sleep 60");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("it ended before it connected to this machine"));
  EXPECT_THAT(error, HasSubstr("no memory"));
}

TEST_F(CallBackTransportTest, StopsWaitingForNodeThatPdshCannotReach) {
  const auto began = Clock::now();
  const std::string error = ErrorOf(
      Launcher::kPdsh, "echo 'pdsh@here: node1: ssh exited with exit code 255' >&2; exec sleep 60");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("by program): ssh exited with exit code 255"));
}

TEST_F(CallBackTransportTest, ReportsFailureOfNodeBeforeItsEnd) {
  const std::string error =
      ErrorOf(Launcher::kPdsh,
              "sleep 0.6; echo \"DSLAUNCH-FAILED $n 0 the disk is full\"\n"
              "echo 'pdsh@here: node1: ssh exited with exit code 98' >&2; exec sleep 60");
  EXPECT_THAT(error, HasSubstr("could not be installed; it printed: the disk is full"));
}

}  // namespace
}  // namespace dslaunch::call_back_transport_test
