// The way to a node through ssh_config's ProxyCommand or ProxyJump.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "proto/contract/error.h"
#include "proto/contract/unique_fd.h"

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

// A running proxy command; its stdin and stdout lead to the node. Out of the terminal's reach,
// since Ctrl-C there is for dslaunch alone. Ended and reaped on destruction.
class SshProxy {
 public:
  // `command` is ExpandProxyCommand()'s. `stream` becomes our end of its stdin and stdout,
  // non-blocking.
  static Result<std::unique_ptr<SshProxy>> Start(const std::string& command, UniqueFd& stream);

  SshProxy(const SshProxy&) = delete;
  SshProxy& operator=(const SshProxy&) = delete;
  ~SshProxy();

  // What it wrote to stderr so far, on one line.
  std::string Said() const;

 private:
  SshProxy(pid_t pid, UniqueFd stderr_file) : pid_(pid), stderr_file_(std::move(stderr_file)) {}

  const pid_t pid_;
  const UniqueFd stderr_file_;
};

}  // namespace dslaunch
