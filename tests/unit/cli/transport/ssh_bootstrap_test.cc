#include "cli/transport/ssh_bootstrap.h"

#include <gmock/gmock.h>

namespace dslaunch::ssh_bootstrap_test {
namespace {

using testing::HasSubstr;

// What lets sh, bash, zsh, fish and csh read a command alike: one line, one pair of single quotes
// around all that is special, and no `!` that csh would take for its history.
void ExpectPortable(const std::string& command) {
  ASSERT_TRUE(command.starts_with("/bin/sh -c '") && command.ends_with("'"));
  EXPECT_EQ(std::count(command.begin(), command.end(), '\''), 2);
  EXPECT_EQ(command.find('\n'), std::string::npos);
  EXPECT_EQ(command.find('%' + std::string("BUILD_ID")), std::string::npos);
  for (size_t at = command.find('!'); at != std::string::npos; at = command.find('!', at + 1)) {
    EXPECT_THAT(std::string("= \t"), HasSubstr(std::string(1, command[at + 1])))
        << command.substr(at, 20);
  }
}

AgentBinary Agent(std::string build_id) { return {"/x", std::move(build_id), "x86_64", 1}; }

TEST(StartScriptTest, IsPortableAndHoldsTheNumbers) {
  const std::string command = ForLoginShell(StartScript(Agent("12ab"), {}, "34cd"));
  ExpectPortable(command);
  EXPECT_THAT(command, HasSubstr("agent-12ab"));
  EXPECT_THAT(command, HasSubstr("supervisor --nonce 34cd"));
}

TEST(StartScriptTest, AnInspectionNamesItsJob) {
  const std::string command = ForLoginShell(
      StartScript(Agent("12ab"), {AgentRole::Kind::kAttach, "20260101-000000-abc", 3}, "34cd"));
  ExpectPortable(command);
  EXPECT_THAT(command, HasSubstr("attach --nonce 34cd 20260101-000000-abc 3'"));
  EXPECT_THAT(ForLoginShell(StartScript(Agent("1"), {AgentRole::Kind::kRead, "", 0}, "2")),
              HasSubstr("read --nonce 2'"));
  EXPECT_THAT(ForLoginShell(StartScript(Agent("1"), {AgentRole::Kind::kDetachable, "", 0}, "2")),
              HasSubstr("supervisor --nonce 2 --detachable'"));
}

TEST(StartScriptTest, NothingButPlainCharactersGetsIn) {
  const std::string command =
      ForLoginShell(StartScript(Agent("12'; rm -rf $HOME #"), {}, "34\n`id`"));
  ExpectPortable(command);
  EXPECT_THAT(command, HasSubstr("agent-12rmrf\""));
  EXPECT_THAT(command, HasSubstr("--nonce 34id'"));
}

TEST(InstallScriptTest, IsPortableAndHoldsTheNumbers) {
  const std::string command =
      ForLoginShell(InstallScript({"/x'y", "12ab", "x86_64", 4711}, "feed", "0a1b"));
  ExpectPortable(command);
  for (const char* part :
       {"agent-12ab", "= x86_64 ]", "-eq 4711 ]", "= feed ]", "DSLAUNCH-COPY 0a1b $1"})
    EXPECT_THAT(command, HasSubstr(part));
  EXPECT_EQ(command.find("x'y"), std::string::npos);
}

// As another folder for the agent is given, whatever its name holds.
TEST(StartScriptTest, AFolderIsOctalNumbers) {
  AgentBinary agent = Agent("12ab");
  agent.node_folder = "/a'\"`$(id)` é!";
  for (const std::string& script :
       {StartScript(agent, {}, "34cd"), InstallScript(agent, "feed", "0a1b")}) {
    ExpectPortable(ForLoginShell(script));
    EXPECT_THAT(script, HasSubstr(R"(d="$(printf "%b" "\0057\0141\0047\0042)"));
    EXPECT_EQ(script.find("(id)"), std::string::npos);
  }
  const std::string folder = StartScript(agent, {}, "34cd").substr(2);
  const std::string command =
      "d=" + folder.substr(0, folder.find(R"(; a=)")) + R"(; printf %s "${d%/*}")";
  FILE* const shell = ::popen(("/bin/sh -c '" + command + "'").c_str(), "r");
  ASSERT_NE(shell, nullptr);
  char text[256];
  const size_t size = ::fread(text, 1, sizeof text, shell);
  EXPECT_EQ(::pclose(shell), 0);
  EXPECT_EQ(std::string(text, size), agent.node_folder);
}

}  // namespace
}  // namespace dslaunch::ssh_bootstrap_test
