#include "cli/transport/agent_role.h"

namespace dslaunch {

AgentRole ResumeRole(const std::string& socket) {
  AgentRole role;
  role.kind = AgentRole::Kind::kResume;
  role.resume_socket = socket;
  return role;
}

std::vector<std::string> AgentArguments(const AgentRole& role, std::string_view nonce) {
  const std::string nonce_text(nonce);
  switch (role.kind) {
    case AgentRole::Kind::kResume:
      return {"resume", "--nonce", nonce_text, role.resume_socket};
    case AgentRole::Kind::kAwaitEnd:
      return {"await", "--nonce", nonce_text, role.start_nonce};
    case AgentRole::Kind::kAttach:
      return {"attach", "--nonce", nonce_text, role.job_id, std::to_string(role.node_index)};
    case AgentRole::Kind::kRead:
      return {"read", "--nonce", nonce_text};
    case AgentRole::Kind::kRelay:
      return {"relay", "--nonce", nonce_text};
    case AgentRole::Kind::kJob:
    case AgentRole::Kind::kDetachable:
      break;
  }
  std::vector<std::string> arguments = {"supervisor", "--nonce", nonce_text};
  if (role.command_fd >= 0)
    arguments.insert(arguments.end(), {"--command-fd", std::to_string(role.command_fd)});
  if (role.in_step) arguments.emplace_back("--in-step");
  if (role.resumable) arguments.push_back("--resumable");
  if (role.kind == AgentRole::Kind::kDetachable) arguments.push_back("--detachable");
  return arguments;
}

}  // namespace dslaunch
