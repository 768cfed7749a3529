// The connection to a node through ssh_config's ProxyCommand.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "cli/transport/child_process.h"

namespace dslaunch {

// What stands for the tokens of a ProxyCommand.
struct ProxyTokens {
  std::string host;  // %h
  int port = 22;     // %p
  std::string user;  // %r
  std::string name;  // %n: as the user wrote it
};

// The command with its tokens replaced. A shell will read it, so names with anything but letters,
// digits and
// `._:@-` in them are refused, and so are tokens other than these and `%%`. Errors are fragments of
// a sentence.
Result<std::string> ExpandProxyCommand(const std::string& command, const ProxyTokens& tokens);

// True when an ssh program's last output shows that an sshd ended the connection before
// authentication, as it does with some of many at once (MaxStartups). False after a refused login.
bool IsTurnedAwayText(std::string_view ssh_stderr);

// A running proxy command; its stdin and stdout lead to the node. Ended and reaped on destruction.
class SshProxy {
 public:
  // `command` is ExpandProxyCommand()'s. `stream` becomes our end of its stdin and stdout,
  // non-blocking.
  static Result<std::unique_ptr<SshProxy>> Start(const std::string& command, UniqueFd& stream);

  SshProxy(const SshProxy&) = delete;
  SshProxy& operator=(const SshProxy&) = delete;
  ~SshProxy();

  // What it wrote to stderr so far.
  std::string Said() const { return child_->StderrTail(); }

 private:
  explicit SshProxy(std::unique_ptr<ChildProcess> child) : child_(std::move(child)) {}

  const std::unique_ptr<ChildProcess> child_;
};

}  // namespace dslaunch
