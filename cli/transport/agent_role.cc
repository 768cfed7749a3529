#include "cli/transport/agent_role.h"

namespace dslaunch {

std::vector<std::string> AgentArguments(const AgentRole& role, std::string_view nonce) {
  const std::string nonce_text(nonce);
  switch (role.kind) {
    case AgentRole::Kind::kDetachable:
      return {"supervisor", "--nonce", nonce_text, "--detachable"};
    case AgentRole::Kind::kAttach:
      return {"attach", "--nonce", nonce_text, role.job_id, std::to_string(role.node_index)};
    case AgentRole::Kind::kRead:
      return {"read", "--nonce", nonce_text};
    case AgentRole::Kind::kRelay:
      return {"relay", "--nonce", nonce_text};
    case AgentRole::Kind::kJob:
      if (role.command_fd >= 0)
        return {"supervisor", "--nonce", nonce_text, "--command-fd",
                std::to_string(role.command_fd)};
      break;
  }
  return {"supervisor", "--nonce", nonce_text};
}

}  // namespace dslaunch
