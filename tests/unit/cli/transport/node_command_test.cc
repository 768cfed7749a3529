#include "cli/transport/node_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/transport/agent_scripts.h"

namespace dslaunch::node_command_test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int Exited(int code) { return code << 8; }

TEST(ExecNodeCommandTest, FillsInNamesAndPassesScriptAsOneArgument) {
  const auto made = ExecNodeCommand::Make({"env", "-u", "{user}@{node}:{node}", "-r{index}"});
  ASSERT_TRUE(made.ok()) << made.error().message;
  const NodeTarget target{"web", "pod-1", 0, "alice", 12};
  const std::vector<std::string> line = (*made)->CommandLine(target, "exec \"$a\" {node}");
  ASSERT_EQ(line.size(), 7u);
  EXPECT_THAT(line.front(), EndsWith("/env"));
  EXPECT_THAT(
      std::vector(line.begin() + 1, line.end()),
      ElementsAre("-u", "alice@pod-1:pod-1", "-r12", "/bin/sh", "-c", "exec \"$a\" {node}"));
  EXPECT_EQ((*made)->Name(), "env");
  EXPECT_THAT((*made)->TryThis(target), EndsWith("/env -u alice@pod-1:pod-1 -r12 true"));
}

TEST(ExecNodeCommandTest, AcceptsIndexInPlaceOfNode) {
  EXPECT_TRUE(ExecNodeCommand::Make({"env", "{index}"}).ok());
  EXPECT_FALSE(ExecNodeCommand::Make({"env", "{user}"}).ok());
}

TEST(ExecNodeCommandTest, AttributesOnlyScriptsCodesToCommand) {
  const auto made = ExecNodeCommand::Make({"env", "{node}"});
  EXPECT_FALSE((*made)->HasFailedItself(Exited(kAgentMissing)));
  EXPECT_FALSE((*made)->HasFailedItself(Exited(kInstallFailed)));
  for (const int status : {Exited(1), Exited(127), Exited(255), 9})
    EXPECT_TRUE((*made)->HasFailedItself(status)) << status;
}

TEST(ExecNodeCommandTest, RejectsInvalidWords) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"env"}, "put {node} where its name belongs"},
      {{"env", "{node}", "{pod}"}, "{pod} is not known; there are {node}"},
      {{"env", "{index}", "{Index}"}, "{Index} is not known"},
      {{"env", "{node}", "{"}, "{ is not known"},
      {{"no-such-program", "{node}"}, "there is no program 'no-such-program' in PATH"},
  };
  for (const auto& [words, message] : cases) {
    const auto made = ExecNodeCommand::Make(words);
    ASSERT_FALSE(made.ok()) << message;
    EXPECT_EQ(made.error().code, ExitCode::kUsage);
    EXPECT_THAT(made.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace dslaunch::node_command_test
