#include "cli/ssh_proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "agent/subprocess.h"
#include "cli/hello.h"
#include "proto/contract/pidfd.h"

namespace dslaunch {
namespace {

constexpr int kEndAfterTermMs = 500;

bool IsHarmless(const std::string& name) {
  const auto allowed = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::strchr("._:@-", c) != nullptr;
  };
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), allowed);
}

Error SystemError(const char* what) {
  return Error{ExitCode::kUnavailable, std::string("the ProxyCommand cannot be started: ") + what +
                                           ": " + std::strerror(errno)};
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
                         ", which dslaunch does not know; it knows %h, %n, %p, %r and %%"};
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
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return SystemError("socketpair");
  stream.Reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  UniqueFd stderr_file(::memfd_create("proxy-stderr", MFD_CLOEXEC));
  if (!stderr_file) return SystemError("memfd_create");
  SpawnSpec spec;
  spec.executable = "/bin/sh";
  spec.argv = {"sh", "-c", "exec " + command};
  spec.env = CurrentEnvironment();
  spec.stdin_fd = theirs.get();
  spec.stdout_fd = theirs.get();
  spec.stderr_fd = stderr_file.get();
  spec.own_session = true;
  const SpawnResult spawned = Spawn(spec);
  if (spawned.pid < 0) {
    errno = spawned.failure.error_number;
    return SystemError(spawned.failure.step);
  }
  ::fcntl(stream.get(), F_SETFL, ::fcntl(stream.get(), F_GETFL) | O_NONBLOCK);
  return std::unique_ptr<SshProxy>(new SshProxy(spawned.pid, std::move(stderr_file)));
}

SshProxy::~SshProxy() {
  const UniqueFd pidfd(PidfdOpen(pid_));
  ::kill(-pid_, SIGTERM);  // its session leads its own group
  pollfd ended{pidfd.get(), POLLIN, 0};
  if (::poll(&ended, 1, kEndAfterTermMs) <= 0) ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string SshProxy::Said() const {
  std::string text(4096, '\0');
  const ssize_t n = ::pread(stderr_file_.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return OneLine(text, 512);
}

}  // namespace dslaunch
