#include "cli/transport/agent_binary.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/os/build_id.h"
#include "tests/support/temp_dir.h"

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

// Returns the content of an agent's file with another machine type in its ELF header.
std::string AgentForMachine(uint16_t machine) {
  std::ifstream file(DSLAUNCH_FAKE_AGENT, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
  return bytes;
}

TEST(AgentBinaryTest, FindsAgentsForOtherMachineTypes) {
  const TempDir folder;
  EXPECT_TRUE(FindOtherAgents(folder / "none", "x86_64")->empty());
  folder.Write("dslaunch-agent-x86_64", "not read");
  folder.Write("dslaunch-agent-s390x", AgentForMachine(EM_S390));
  folder.Write("dslaunch-agent-aarch64", AgentForMachine(EM_AARCH64));
  AgentBinary agent = *ReadAgentBinary(DSLAUNCH_FAKE_AGENT);
  agent.machine = "x86_64";
  agent.node_folder = "/shared";
  const auto others = FindOtherAgents(folder.path(), agent.machine);
  ASSERT_TRUE(others.ok()) << others.error().message;
  agent.others = *others;
  EXPECT_THAT(MachinesOf(agent), testing::ElementsAre("x86_64", "aarch64", "s390x"));
  EXPECT_EQ(AgentFor(agent, "")->path, agent.path);
  EXPECT_EQ(AgentFor(agent, "x86_64")->path, agent.path);
  EXPECT_EQ(AgentFor(agent, "aarch64")->path, folder / "dslaunch-agent-aarch64");
  EXPECT_EQ(AgentFor(agent, "aarch64")->node_folder, "/shared");
  EXPECT_EQ(AgentFor(agent, "aarch64")->size_bytes, agent.size_bytes);
  EXPECT_FALSE(AgentFor(agent, "ppc64le"));
  agent.others.front().build_id = "ab";
  EXPECT_TRUE(HasBuild(agent, agent.build_id) && HasBuild(agent, "ab"));
  EXPECT_FALSE(HasBuild(agent, "cd"));

  folder.Write("dslaunch-agent-riscv64", AgentForMachine(EM_AARCH64));
  EXPECT_THAT(FindOtherAgents(folder.path(), "x86_64").error().message,
              HasSubstr("is not an agent for nodes of type riscv64; install dslaunch again"));
}

TEST(ElfMachineTest, ReturnsNameOfUname) {
  const std::string elf = AgentForMachine(EM_AARCH64);
  EXPECT_EQ(ElfMachine(elf), "aarch64");
  EXPECT_EQ(ElfMachine(AgentForMachine(EM_X86_64)), "x86_64");
  EXPECT_EQ(ElfMachine(AgentForMachine(EM_PPC64)), "ppc64le");
  EXPECT_EQ(ElfMachine(AgentForMachine(0xfefe)), "");
  std::string big = AgentForMachine(EM_PPC64 << 8);
  big[EI_DATA] = ELFDATA2MSB;
  EXPECT_EQ(ElfMachine(big), "ppc64");
  for (size_t size = 0; size < kElfMachineHead; ++size)
    EXPECT_EQ(ElfMachine(elf.substr(0, size)), "");
  EXPECT_EQ(ElfMachine("#!/bin/sh\nexec true it is\n"), "");
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
