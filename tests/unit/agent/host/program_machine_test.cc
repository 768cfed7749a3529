#include "agent/host/program_machine.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "base/os/build_id.h"
#include "base/os/proc_text.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::program_machine_test {
namespace {

using ::testing::HasSubstr;

// Returns the beginning of /bin/sh with its machine type replaced by `machine`.
std::string ShellFor(uint16_t machine) {
  std::string bytes = ReadBeginning("/bin/sh", 4096);
  std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
  return bytes;
}

TEST(IsOwnMachineTest, AllowsSiblingsAndUnknownTypes) {
  EXPECT_TRUE(IsOwnMachine("x86_64", "x86_64"));
  EXPECT_TRUE(IsOwnMachine("i686", "x86_64"));
  EXPECT_TRUE(IsOwnMachine("armv7l", "aarch64"));
  EXPECT_TRUE(IsOwnMachine("", "x86_64"));
  EXPECT_TRUE(IsOwnMachine("aarch64", ""));
  EXPECT_FALSE(IsOwnMachine("aarch64", "x86_64"));
  EXPECT_FALSE(IsOwnMachine("x86_64", "aarch64"));
  EXPECT_FALSE(IsOwnMachine("i686", "aarch64"));
}

// The test uses s390x, because this machine may run programs of other types with an emulator.
TEST(CheckMachineTest, RejectsProgramForOtherMachineType) {
  const TempDir dir;
  const std::string own = ElfMachine(ReadBeginning("/proc/self/exe", kElfMachineHead));
  const std::string program = dir.Write("program", ShellFor(EM_S390), /*executable=*/true);
  const Result<void> refused = CheckMachine(program, "./program", "node2");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ExitCode::kCannotExecute);
  EXPECT_THAT(refused.error().message,
              HasSubstr("node2: program './program' cannot be started: it was built for s390x, and "
                        "the node is of type " +
                        own + "; "));

  const std::string script = dir.Write("run", "#!" + program + " -u\n", /*executable=*/true);
  EXPECT_THAT(CheckMachine(script, "./run", "node2").error().message,
              HasSubstr("its interpreter " + program + " was built for s390x"));
}

TEST(CheckMachineTest, AllowsOwnAndUnknownFiles) {
  const TempDir dir;
  EXPECT_TRUE(CheckMachine("/bin/sh", "sh", "node2").ok());
  for (const std::string& content :
       {std::string(), std::string("#!/bin/sh\n"), std::string("#!/no/such/shell\n"),
        ShellFor(0xfefe), ShellFor(EM_S390).substr(0, 19)}) {
    EXPECT_TRUE(CheckMachine(dir.Write("file", content, true), "./file", "node2").ok());
  }
}

}  // namespace
}  // namespace dslaunch::program_machine_test
