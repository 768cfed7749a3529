#include "cli/transport/node_command.h"

#include <sys/wait.h>

#include <filesystem>

#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/text/substitute.h"
#include "cli/transport/agent_scripts.h"

namespace dslaunch {
namespace {

constexpr char kNode[] = "{node}";
constexpr char kUser[] = "{user}";
constexpr char kIndex[] = "{index}";

}  // namespace

std::string ProgramName(const std::vector<std::string>& words) {
  return std::filesystem::path(words.front()).filename().string();
}

std::vector<std::string> ExecNodeCommand::WordsFor(const NodeTarget& target) const {
  std::vector<std::string> argv = words_;
  for (size_t i = 1; i < argv.size(); ++i)
    argv[i] = Substitute(
        argv[i],
        {{kIndex, std::to_string(target.index)}, {kNode, target.host}, {kUser, target.user}});
  return argv;
}

std::vector<std::string> ExecNodeCommand::CommandLine(const NodeTarget& target,
                                                      const std::string& script) const {
  std::vector<std::string> argv = WordsFor(target);
  argv.insert(argv.end(), {"/bin/sh", "-c", script});
  return argv;
}

// These programs return the exit code of the command, and often 1 for their own errors. Therefore
// only the script's codes for a missing agent and a failed installation certainly come from the
// command.
bool NodeCommand::HasFailedItself(int wait_status) const {
  return !WIFEXITED(wait_status) ||
         (WEXITSTATUS(wait_status) != kAgentMissing && WEXITSTATUS(wait_status) != kInstallFailed);
}

std::string ExecNodeCommand::TryThis(const NodeTarget& target) const {
  std::string line;
  for (const std::string& word : WordsFor(target)) line += word + " ";
  return SanitizeForTerminal(line) + "true";
}

std::string ExecNodeCommand::Name() const { return ProgramName(words_); }

Result<std::unique_ptr<NodeCommand>> ExecNodeCommand::Make(std::vector<std::string> words) {
  constexpr char kOption[] = "--exec_command: ";
  bool names_node = false;
  for (size_t i = 1; i < words.size(); ++i) {
    names_node |=
        words[i].find(kNode) != std::string::npos || words[i].find(kIndex) != std::string::npos;
    for (size_t at = words[i].find('{'); at != std::string::npos; at = words[i].find('{', at + 1)) {
      const size_t end = words[i].find('}', at);
      const std::string name =
          words[i].substr(at, end == std::string::npos ? std::string::npos : end - at + 1);
      if (name == kNode || name == kUser || name == kIndex) continue;
      return Error{ExitCode::kUsage, kOption + Truncate(name) +
                                         " is not known; there are {node}, the node's name in the "
                                         "hostfile, {user}, and {index}, its number in the job "
                                         "from 0"};
    }
  }
  if (!names_node) {
    return Error{ExitCode::kUsage,
                 std::string(kOption) +
                     "it does not name the node; put {node} where its name belongs, or "
                     "{index} where its number does, as in --exec_command 'kubectl exec -i {node} "
                     "--'"};
  }
  std::string program = FindProgram(words.front());
  if (program.empty()) {
    return Error{ExitCode::kUsage, "there is no program '" + Truncate(words.front()) +
                                       "' in PATH, by which the nodes are to be reached; install "
                                       "it here, or name another with --exec_command"};
  }
  words.front() = std::move(program);
  return std::unique_ptr<NodeCommand>(new ExecNodeCommand(std::move(words)));
}

}  // namespace dslaunch
