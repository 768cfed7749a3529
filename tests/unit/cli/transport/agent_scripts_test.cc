#include "cli/transport/agent_scripts.h"

#include <gmock/gmock.h>
#include <sys/utsname.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/digest/sha256.h"
#include "base/os/proc_text.h"
#include "base/text/hex.h"
#include "tests/support/temp_dir.h"

namespace dslaunch::agent_scripts_test {
namespace {

using testing::HasSubstr;

// Checks that sh, bash, zsh, fish and csh parse the command alike: it must be one line, with one
// pair of single quotes around all special characters, and no `!`, which csh would treat as
// history.
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

TEST(StartScriptTest, IsPortableAndContainsIds) {
  const std::string command = ForLoginShell(StartScript(Agent("12ab"), {}, "34cd"));
  ExpectPortable(command);
  EXPECT_THAT(command, HasSubstr("agent-12ab"));
  EXPECT_THAT(command, HasSubstr("supervisor --nonce 34cd"));
}

TEST(StartScriptTest, ContainsArgumentsOfEachRole) {
  const std::string command = ForLoginShell(
      StartScript(Agent("12ab"), {AgentRole::Kind::kAttach, "20260101-000000-abc", 3}, "34cd"));
  ExpectPortable(command);
  EXPECT_THAT(command, HasSubstr("attach --nonce 34cd 20260101-000000-abc 3'"));
  EXPECT_THAT(ForLoginShell(StartScript(Agent("1"), {AgentRole::Kind::kRead, "", 0}, "2")),
              HasSubstr("read --nonce 2'"));
  EXPECT_THAT(ForLoginShell(StartScript(Agent("1"), {AgentRole::Kind::kDetachable, "", 0}, "2")),
              HasSubstr("supervisor --nonce 2 --detachable'"));
}

TEST(StartScriptTest, DropsSpecialCharacters) {
  const std::string command =
      ForLoginShell(StartScript(Agent("12'; rm -rf $HOME #"), {}, "34\n`id`"));
  ExpectPortable(command);
  EXPECT_THAT(command, HasSubstr("agent-12rmrf\""));
  EXPECT_THAT(command, HasSubstr("--nonce 34id'"));
}

TEST(InstallScriptTest, IsPortableAndContainsIds) {
  const std::string command =
      ForLoginShell(InstallScript({"/x'y", "12ab", "x86_64", 4711}, "feed", "0a1b"));
  ExpectPortable(command);
  for (const char* part :
       {"agent-12ab", "= x86_64 ]", "-eq 4711 ]", "= feed ]", "DSLAUNCH-COPY 0a1b $1"})
    EXPECT_THAT(command, HasSubstr(part));
  EXPECT_EQ(command.find("x'y"), std::string::npos);
}

// The connection is lost before the script requests the agent's bytes, so its stdout is closed.
TEST(InstallScriptTest, CleansUpIfStdoutIsClosed) {
  utsname machine{};
  ASSERT_EQ(::uname(&machine), 0);
  const TempDir folder;
  const AgentBinary binary{"/x", "12ab", machine.machine, 4711, folder / "nodes"};
  const std::string script = ForLoginShell(InstallScript(binary, "feed", "0a1b"));
  // The script runs as under sshd, with the default action for SIGPIPE.
  const std::string command = "{ sleep 0.2; env --default-signal=PIPE " + script +
                              " < /dev/null; echo $? > '" + (folder / "code") + "'; } | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(ReadWhole(folder / "code"), "98\n");
  const std::string cache = binary.node_folder + "/dslaunch-" + std::to_string(::getuid());
  EXPECT_TRUE(std::filesystem::is_empty(cache));
}

// Nodes with a shared home find an abandoned lock at the same time. One node must take the lock
// over, and no copy may fail.
TEST(InstallScriptTest, OneNodeTakesOverAbandonedLock) {
  const std::string content = "#!/bin/sh\nexit 0\n";
  utsname machine{};
  ASSERT_EQ(::uname(&machine), 0);
  for (const char* left : {"0f", "0f 0f.old", ""}) {
    const TempDir folder;
    const std::string agent = folder.Write("agent", content);
    const std::string tools = folder / "tools";
    std::filesystem::create_directory(tools);
    folder.Write("tools/sleep", "#!/bin/sh\nexec /bin/sleep 0.05\n", /*executable=*/true);
    const AgentBinary binary{agent, "12ab", machine.machine, content.size(), folder / "nodes"};
    const std::string cache = binary.node_folder + "/dslaunch-" + std::to_string(::getuid());
    std::filesystem::create_directories(cache + "/.copy-12ab");
    for (std::string name; const char c : std::string(left) + ' ') {
      if (c != ' ') {
        name += c;
      } else if (!name.empty()) {
        std::ofstream(cache + "/.copy-12ab/" + name) << "half";
        name.clear();
      }
    }
    std::vector<FILE*> shells;
    for (int node = 0; node < 6; ++node) {
      const std::string script = InstallScript(binary, ToHex(Sha256Of(content)),
                                               "a" + std::to_string(node), CopyForm::kRaw);
      shells.push_back(::popen(
          ("PATH=" + tools + ":$PATH " + ForLoginShell(script) + " < " + agent + " > /dev/null")
              .c_str(),
          "r"));
    }
    for (FILE* const shell : shells) EXPECT_EQ(::pclose(shell), 0) << left;
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(cache))
      names.push_back(entry.path().filename());
    EXPECT_THAT(names, testing::ElementsAre("agent-12ab")) << left;
  }
}

// The node's clock is more than a day ahead of the file server's clock, so new files look old.
TEST(InstallScriptTest, RemovesNothingIfClockIsDayAhead) {
  const std::string content = "#!/bin/sh\nexit 0\n";
  utsname machine{};
  ASSERT_EQ(::uname(&machine), 0);
  const TempDir folder;
  const std::string agent = folder.Write("agent", content);
  std::filesystem::create_directory(folder / "tools");
  folder.Write("tools/find",
               "#!/bin/bash\nset -- \"${@/#+0/+-1}\"\nexec /usr/bin/find \"${@/#+89/+-1}\"\n",
               /*executable=*/true);
  const AgentBinary binary{agent, "12ab", machine.machine, content.size(), folder / "nodes"};
  const std::string cache = binary.node_folder + "/dslaunch-" + std::to_string(::getuid());
  std::filesystem::create_directories(cache + "/.copy-34cd");
  std::ofstream(cache + "/agent-34cd") << "in use";
  const std::string script =
      InstallScript(binary, ToHex(Sha256Of(content)), "0a1b", CopyForm::kRaw);
  const std::string command = "PATH=" + (folder / "tools") + ":$PATH " + ForLoginShell(script) +
                              " < " + agent + " > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cache))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("agent-12ab", "agent-34cd", ".copy-34cd"));
}

// Any character may occur in the name of the folder, so it is encoded.
TEST(StartScriptTest, EncodesFolderInOctal) {
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

TEST(CallBackScriptTest, ContainsAddressesAndNoSingleQuote) {
  AgentBinary agent;
  agent.build_id = "abc";
  agent.machine = "x86_64";
  agent.size_bytes = 7;
  const CallBackStart start{
      "5eed", "$OMPI_COMM_WORLD_RANK", std::string(64, 'f'), {"10.0.0.1:4711", "fd66::1:4711"}};
  const std::string script = CallBackScript({{agent, std::string(64, 'a'), "7e57"}}, {}, start);
  EXPECT_THAT(script, Not(HasSubstr("'")));
  EXPECT_THAT(script, HasSubstr("for e in 10.0.0.1/4711 fd66::1/4711;"));
  EXPECT_THAT(script, HasSubstr(" call-back --nonce 5eed $OMPI_COMM_WORLD_RANK ffff"));
  EXPECT_THAT(script, HasSubstr("f 10.0.0.1:4711,fd66::1:4711 supervisor --nonce 5eed"));
}

// A node on which `uname -m` prints the type in the parameter. Its installed agents print their
// name and arguments.
class NodeOfTypeTest : public ::testing::TestWithParam<const char*> {
 protected:
  NodeOfTypeTest() {
    std::filesystem::create_directories(folder_ / "tools");
    folder_.Write("tools/uname", std::string("#!/bin/sh\necho ") + GetParam() + "\n", true);
    agent_.node_folder = folder_ / "nodes";
    agent_.others = {{"/y", "34cd", "aarch64", 1}};
    std::filesystem::create_directories(Cache());
  }

  std::string Cache() const {
    return agent_.node_folder + "/dslaunch-" + std::to_string(::getuid());
  }
  void InstallAgents() const {
    for (const char* build : {"12ab", "34cd"}) {
      const std::string name = "nodes/dslaunch-" + std::to_string(::getuid()) + "/agent-" + build;
      folder_.Write(name, "#!/bin/sh\necho ${0##*/agent-} $1\n", /*executable=*/true);
    }
  }
  // Runs a script as a login shell would. Returns its output followed by its exit status.
  std::string Run(const std::string& script) const {
    FILE* const shell = ::popen(
        ("PATH=" + (folder_ / "tools") + ":$PATH " + ForLoginShell(script) + " 2>&1").c_str(), "r");
    std::string text;
    for (int c; (c = ::fgetc(shell)) != EOF;) text += static_cast<char>(c);
    return text + std::to_string(WEXITSTATUS(::pclose(shell)));
  }

  const TempDir folder_;
  AgentBinary agent_ = Agent("12ab");
};

TEST_P(NodeOfTypeTest, StartsAgentForItsType) {
  const std::string script = StartScript(agent_, {}, "5eed");
  ExpectPortable(ForLoginShell(script));
  const std::string line = "DSLAUNCH-MACHINE 5eed " + std::string(GetParam()) + "\n";
  EXPECT_EQ(Run(script), line + "97");
  InstallAgents();
  const std::string expected = GetParam() == std::string("x86_64")    ? "12ab supervisor\n0"
                               : GetParam() == std::string("aarch64") ? "34cd supervisor\n0"
                                                                      : "97";
  EXPECT_EQ(Run(script), line + expected);
}

TEST_P(NodeOfTypeTest, FetchesAgentForItsTypeToCallBack) {
  const CallBackStart start{"5eed", "0", std::string(64, 'f'), {}};
  const std::string script = CallBackScript(
      {{agent_, "feed", "71"}, {*AgentFor(agent_, "aarch64"), "beef", "72"}}, {}, start);
  ExpectPortable(ForLoginShell(script));
  const std::string unknown = Run(script);
  if (GetParam() == std::string("ppc64le")) {
    EXPECT_THAT(unknown, HasSubstr("the node is of type ppc64le, and this dslaunch has agents for "
                                   "x86_64, aarch64 only; put"));
  } else {
    EXPECT_THAT(unknown, HasSubstr("DSLAUNCH-FAILED 5eed 0 only 0 of 1 bytes arrived"));
  }
  InstallAgents();
  if (GetParam() == std::string("ppc64le")) return;
  EXPECT_EQ(Run(script),
            GetParam() == std::string("x86_64") ? "12ab call-back\n0" : "34cd call-back\n0");
}

INSTANTIATE_TEST_SUITE_P(Types, NodeOfTypeTest, ::testing::Values("x86_64", "aarch64", "ppc64le"));

}  // namespace
}  // namespace dslaunch::agent_scripts_test
