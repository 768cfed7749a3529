#include "cli/launchers/transport_engine.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace dslaunch::transport_engine_test {
namespace {

using testing::HasSubstr;

// The engine is a script. Its last argument is what would run on each node.
class EngineTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    std::ofstream(folder_.path() + "/agent") << "an agent";
  }

  // The result of a node whose agent has printed its key. The deadline is 20 s away.
  std::string ErrorOf(const std::string& what_follows) {
    return ErrorOf(Engine::kOpenMpi,
                   "echo \"DSLAUNCH-DIAL $n 0 " + std::string(64, 'a') + "\"\n" + what_follows);
  }

  // The same of another engine, with nothing printed yet.
  std::string ErrorOf(Engine kind, const std::string& what_follows) {
    const std::string engine = folder_.path() + "/engine";
    std::ofstream(engine)
        << "#!/bin/sh\n"
           "for script; do :; done\n"
           "n=$(printf %s \"$script\" | sed -n 's/.*--nonce \\([0-9a-f]*\\).*/\\1/p')\n" +
               what_follows + "\n";
    ::chmod(engine.c_str(), 0700);
    EngineTransport::Options options;
    options.agent.path = folder_.path() + "/agent";
    options.agent.build_id = "7e57";
    options.engine.engine = kind;
    options.engine.words = {engine};
    const NodeTarget node{"node1", "node1", 0, "", 0};
    options.nodes = {node};
    const Result<std::unique_ptr<NodeLink>> link =
        EngineTransport(std::move(options)).Connect(node, Deadline::After(milliseconds(20'000)));
    return link.ok() ? "" : link.error().message;
  }

  TempDir folder_;
};

TEST_F(EngineTransportTest, AnAgentThatEndsBeforeItConnectsIsNotWaitedFor) {
  const auto began = Clock::now();
  const std::string error =
      ErrorOf("echo no memory >&2; sleep 0.5; echo \"DSLAUNCH-ENDED $n 0 1\"; exec sleep 60");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("it ended before it connected to this machine"));
  EXPECT_THAT(error, HasSubstr("no memory"));
}

TEST_F(EngineTransportTest, AnEngineThatEndsBeforeItsAgentConnectsIsNotWaitedFor) {
  const auto began = Clock::now();
  const std::string error = ErrorOf("echo node1 was killed >&2; exit 9");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("it ended before it connected to this machine"));
  EXPECT_THAT(error, HasSubstr("node1 was killed"));
}

// The case of a killed dial process: only pdsh reports its end.
TEST_F(EngineTransportTest, AnAgentOfWhoseEndOnlyPdshKnowsIsNotWaitedFor) {
  const auto began = Clock::now();
  const std::string error =
      ErrorOf(Engine::kPdsh,
              "echo \"DSLAUNCH-DIAL $n 0 " + std::string(64, 'a') +
                  "\"; echo no memory >&2; sleep 0.5\n"
                  "echo 'pdsh@here: node1: ssh exited with exit code 255' >&2; exec sleep 60");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("it ended before it connected to this machine"));
  EXPECT_THAT(error, HasSubstr("no memory"));
}

TEST_F(EngineTransportTest, ANodeThatPdshDoesNotReachIsNotWaitedFor) {
  const auto began = Clock::now();
  const std::string error = ErrorOf(
      Engine::kPdsh, "echo 'pdsh@here: node1: ssh exited with exit code 255' >&2; exec sleep 60");
  EXPECT_LT(Clock::now() - began, milliseconds(10'000));
  EXPECT_THAT(error, HasSubstr("by engine): ssh exited with exit code 255"));
}

TEST_F(EngineTransportTest, WhatANodeSaidBeforeItsEndIsTakenFirst) {
  const std::string error =
      ErrorOf(Engine::kPdsh,
              "sleep 0.6; echo \"DSLAUNCH-FAILED $n 0 the disk is full\"\n"
              "echo 'pdsh@here: node1: ssh exited with exit code 98' >&2; exec sleep 60");
  EXPECT_THAT(error, HasSubstr("could not be installed; it said: the disk is full"));
}

}  // namespace
}  // namespace dslaunch::transport_engine_test
