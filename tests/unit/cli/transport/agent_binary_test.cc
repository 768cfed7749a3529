#include "cli/transport/agent_binary.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/os/build_id.h"

namespace dslaunch::agent_binary_test {
namespace {

using testing::HasSubstr;

TEST(AgentBinaryTest, ReadsOwnBuildIdFromFile) {
  const std::string own = OwnBuildId();
  EXPECT_EQ(own.size(), 40u);
  const Result<ElfIdentity> read = ReadElfIdentity("/proc/self/exe");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->build_id, own);
  EXPECT_NE(read->machine, "");
}

TEST(AgentBinaryTest, ReadsPropertiesOfAgent) {
  const Result<AgentBinary> agent = ReadAgentBinary(DSLAUNCH_FAKE_AGENT);
  ASSERT_TRUE(agent.ok()) << agent.error().message;
  EXPECT_EQ(agent->size_bytes, std::filesystem::file_size(DSLAUNCH_FAKE_AGENT));
  EXPECT_NE(agent->build_id, OwnBuildId());
}

TEST(AgentBinaryTest, RejectsMissingAndForeignFiles) {
  EXPECT_THAT(ReadAgentBinary("/nonexistent/dslaunch-agent").error().message,
              HasSubstr("same folder as dslaunch"));
  const std::string path =
      std::filesystem::temp_directory_path() / ("agent-binary-test-" + std::to_string(::getpid()));
  for (const std::string& content :
       {std::string(), std::string("#!/bin/sh\n"), std::string(5000, '\x7f'),
        std::string("\x7f"
                    "ELF\2\1\1",
                    7) +
            std::string(200, '\xff')}) {
    std::ofstream(path, std::ios::binary) << content;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    EXPECT_FALSE(ReadAgentBinary(path).ok());
  }
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  if (::getuid() != 0) {
    EXPECT_EQ(ReadAgentBinary(path).error().code, ExitCode::kCannotExecute);
  }
  std::filesystem::remove(path);
}

TEST(AgentBinaryTest, ReturnsSha256OfFile) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("sha256-test-" + std::to_string(::getpid()));
  std::ofstream(path) << "abc";
  const Result<std::string> digest = Sha256OfFile(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(*digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace dslaunch::agent_binary_test
