#include "cli/transport/ssh/ssh_node_command.h"

#include <sys/wait.h>

#include "cli/transport/agent_scripts.h"

namespace dslaunch {
namespace {

constexpr int kSshFailed = 255;  // ssh's exit code if ssh itself failed, not the command
constexpr milliseconds kSshConfigLimit{3000};

}  // namespace

std::vector<std::string> SshNodeCommand::CommandLine(const NodeTarget& target,
                                                     const std::string& script) const {
  std::vector<std::string> argv = words_;
  if (target.port > 0) argv.insert(argv.end(), {"-p", std::to_string(target.port)});
  if (!target.user.empty()) argv.insert(argv.end(), {"-l", target.user});
  argv.insert(argv.end(), {"-T", target.host, ForLoginShell(script)});
  return argv;
}

// Only ssh_config shows which nodes share a bastion, so the name comes from ssh_config.
std::string SshNodeCommand::GateName(const NodeTarget& target, Deadline deadline) const {
  const Result<SshConfig> config =
      configs_->Read(target, "", words_, Deadline::After(kSshConfigLimit).Earlier(deadline));
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

std::string SshNodeCommand::Name() const { return ProgramName(words_); }

}  // namespace dslaunch
