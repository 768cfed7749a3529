#include "cli/transport/node_command.h"

#include <sys/wait.h>

#include <filesystem>

#include "base/os/subprocess.h"
#include "base/text/sanitize.h"
#include "base/text/substitute.h"
#include "cli/transport/ssh_bootstrap.h"

namespace dslaunch {
namespace {

constexpr int kSshFailed = 255;  // ssh's exit code if it failed itself, not the command
constexpr milliseconds kConfigLimit{3000};
constexpr char kNode[] = "{node}";
constexpr char kUser[] = "{user}";
constexpr char kIndex[] = "{index}";

std::string NameOf(const std::vector<std::string>& words) {
  return std::filesystem::path(words.front()).filename().string();
}

}  // namespace

std::vector<std::string> SshNodeCommand::CommandLine(const NodeTarget& target,
                                                     const std::string& script) const {
  std::vector<std::string> argv = words_;
  if (target.port > 0) argv.insert(argv.end(), {"-p", std::to_string(target.port)});
  if (!target.user.empty()) argv.insert(argv.end(), {"-l", target.user});
  argv.insert(argv.end(), {"-T", target.host, ForLoginShell(script)});
  return argv;
}

// Only ssh_config shows which nodes share a bastion.
std::string SshNodeCommand::GateName(const NodeTarget& target, Deadline deadline) const {
  const Result<SshConfig> config =
      configs_->Read(target, "", words_, Deadline::After(kConfigLimit).Earlier(deadline));
  if (!config) return target.host;
  if (!config->proxy_command.empty()) return config->proxy_command;
  return config->proxy_jump.empty() ? config->host_name : config->proxy_jump.front().host;
}

bool SshNodeCommand::HasFailedItself(int wait_status) const {
  return !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) == kSshFailed;
}

std::string SshNodeCommand::TryThis(const NodeTarget& target) const {
  return words_.front() + " " + target.host + " true";
}

std::string SshNodeCommand::Name() const { return NameOf(words_); }

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

// These programs return the exit code of the command, and often 1 for their own errors, so only the
// script's codes for a missing agent certainly come from the command.
bool ExecNodeCommand::HasFailedItself(int wait_status) const {
  return !WIFEXITED(wait_status) ||
         (WEXITSTATUS(wait_status) != kAgentMissing && WEXITSTATUS(wait_status) != kInstallFailed);
}

std::string ExecNodeCommand::TryThis(const NodeTarget& target) const {
  std::string line;
  for (const std::string& word : WordsFor(target)) line += word + " ";
  return SanitizeForTerminal(line) + "true";
}

std::string ExecNodeCommand::Name() const { return NameOf(words_); }

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
                     "it does not say which node is meant; put {node} where its name belongs, or "
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
