#include "cli/transport/ssh/ssh_node_command.h"

#include <gmock/gmock.h>

namespace dslaunch::ssh_node_command_test {
namespace {

using ::testing::ElementsAre;

constexpr int Exited(int code) { return code << 8; }

TEST(SshNodeCommandTest, PassesPortUserAndQuotedScript) {
  const SshNodeCommand command({"/bin/ssh", "-v"});
  EXPECT_THAT(
      command.CommandLine({"a", "host", 22, "bob"}, "exit 3"),
      ElementsAre("/bin/ssh", "-v", "-p", "22", "-l", "bob", "-T", "host", "/bin/sh -c 'exit 3'"));
  EXPECT_THAT(command.CommandLine({"a", "host", 0, ""}, "true"),
              ElementsAre("/bin/ssh", "-v", "-T", "host", "/bin/sh -c 'true'"));
  EXPECT_TRUE(command.HasFailedItself(Exited(255)));
  EXPECT_FALSE(command.HasFailedItself(Exited(1)));
}

}  // namespace
}  // namespace dslaunch::ssh_node_command_test
