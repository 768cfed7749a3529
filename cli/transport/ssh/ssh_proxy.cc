#include "cli/transport/ssh/ssh_proxy.h"

#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <string_view>

#include "cli/transport/hello.h"

namespace dslaunch {
namespace {

constexpr milliseconds kEndAfterTerm{500};

bool IsHarmless(const std::string& name) {
  const auto allowed = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._:@-").find(c) != std::string_view::npos;
  };
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace

Result<std::string> ExpandProxyCommand(const std::string& command, const ProxyTokens& tokens) {
  std::string expanded;
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] != '%') {
      expanded += command[i];
      continue;
    }
    const char token = i + 1 < command.size() ? command[++i] : '\0';
    std::string value;
    switch (token) {
      case '%':
        expanded += '%';
        continue;
      case 'h':
        value = tokens.host;
        break;
      case 'n':
        value = tokens.name;
        break;
      case 'p':
        value = std::to_string(tokens.port);
        break;
      case 'r':
        value = tokens.user;
        break;
      default:
        return Error{ExitCode::kBadInput,
                     std::string("ssh_config's ProxyCommand uses %") + token +
                         ", which dslaunch does not support; it supports %h, %n, %p, %r and %%"};
    }
    if (!IsHarmless(value)) {
      return Error{ExitCode::kBadInput, "ssh_config's ProxyCommand would hand '" +
                                            OneLine(value, 100) +
                                            "' to a shell; rename the host or user"};
    }
    expanded += value;
  }
  return expanded;
}

Result<std::unique_ptr<SshProxy>> SshProxy::Start(const std::string& command, UniqueFd& stream) {
  Result<std::unique_ptr<ChildProcess>> child =
      ChildProcess::Start({"/bin/sh", "-c", "exec " + command}, ChildProcess::Fate::kEndsWithUs);
  if (!child) {
    return Error{child.error().code,
                 "the ProxyCommand cannot be started: " + child.error().message};
  }
  stream = (*child)->TakeStream();
  ::fcntl(stream.get(), F_SETFL, ::fcntl(stream.get(), F_GETFL) | O_NONBLOCK);
  return std::unique_ptr<SshProxy>(new SshProxy(std::move(*child)));
}

SshProxy::~SshProxy() {
  child_->SignalGroup(SIGTERM);
  if (!child_->WaitEnd(Deadline::After(kEndAfterTerm))) child_->SignalGroup(SIGKILL);
}

}  // namespace dslaunch
