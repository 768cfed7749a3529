#include "cli/options/hostfile_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::hostfile_command_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = HostfileCommand::Kind;
using Source = HostfileCommand::Source;

std::string Refusal(const std::vector<std::string>& words) {
  const Result<HostfileCommand> command = ParseHostfileCommand(words);
  if (command.ok()) return "";
  EXPECT_EQ(command.error().code, ExitCode::kUsage);
  EXPECT_EQ(command.error().message.find('\n'), std::string::npos);
  return command.error().message;
}

TEST(HostfileCommandTest, ReadsOptionsOfWrite) {
  const auto hosts = ParseHostfileCommand({"hostfile", "write", "--hosts", "a,u@b:22,c", "-o", "hf",
                                           "--force", "--skip-failing", "--connect-timeout=3"});
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  EXPECT_EQ(hosts->kind, Kind::kWrite);
  EXPECT_EQ(hosts->source, Source::kHosts);
  EXPECT_THAT(hosts->hosts, ElementsAre("a", "u@b:22", "c"));
  EXPECT_EQ(hosts->output, "hf");
  EXPECT_TRUE(hosts->force && hosts->skip_failing);
  EXPECT_EQ(hosts->connect_timeout_ms, 3000);
  EXPECT_THAT(ParseHostfileCommand({"hostfile", "check", "f", "--ssh_command=ssh -4"})->ssh_command,
              ElementsAre("ssh", "-4"));
  EXPECT_EQ(ParseHostfileCommand({"hostfile", "write", "--slurm"})->source, Source::kSlurm);
  EXPECT_EQ(ParseHostfileCommand({"hostfile", "write", "--ssh-config"})->source,
            Source::kSshConfig);
}

TEST(HostfileCommandTest, ReadsOptionsOfCheckAndHelp) {
  const auto check = ParseHostfileCommand({"hostfile", "check", "--json", "my/hf"});
  ASSERT_TRUE(check.ok()) << check.error().message;
  EXPECT_EQ(check->kind, Kind::kCheck);
  EXPECT_EQ(check->file, "my/hf");
  EXPECT_TRUE(check->json);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"hostfile", "--help"}, {"hostfile", "check", "--help"}}) {
    const auto help = ParseHostfileCommand(words);
    ASSERT_TRUE(help.ok());
    EXPECT_EQ(help->kind, Kind::kHelp);
    EXPECT_THAT(help->text, HasSubstr("dslaunch hostfile check FILE"));
  }
}

TEST(HostfileCommandTest, ErrorsIncludeHint) {
  EXPECT_THAT(Refusal({"hostfile"}), HasSubstr("write or check"));
  EXPECT_THAT(Refusal({"hostfile", "wirte"}), HasSubstr("did you mean write?"));
  EXPECT_THAT(Refusal({"hostfile", "zzzzz"}), HasSubstr("give write or check"));
  EXPECT_THAT(Refusal({"hostfile", "write"}), HasSubstr("--hosts a,b,c, --slurm or --ssh_config"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--slurm", "--hosts", "a"}),
              HasSubstr("in exactly one way"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--slurm", "--force"}), HasSubstr("--output FILE"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--slrum"}), HasSubstr("did you mean --slurm?"));
  EXPECT_THAT(Refusal({"hostfile", "write", "--hosts"}), HasSubstr("--hosts"));
  EXPECT_THAT(Refusal({"hostfile", "check"}), HasSubstr("which file?"));
  EXPECT_THAT(Refusal({"hostfile", "check", "a", "b"}), HasSubstr("'b'"));
  EXPECT_THAT(Refusal({"hostfile", "check", "a", "--connect_timeout", "soon"}), HasSubstr("soon"));
}

}  // namespace
}  // namespace dslaunch::hostfile_command_test
