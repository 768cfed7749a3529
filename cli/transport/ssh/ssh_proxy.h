// Connects to a node through ssh_config's ProxyCommand.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "cli/transport/child_process.h"

namespace dslaunch {

// The values of a ProxyCommand's tokens.
struct ProxyTokens {
  std::string host;  // %h
  int port = 22;     // %p
  std::string user;  // %r
  std::string name;  // %n, the name as the user wrote it
};

// Replaces the tokens of `command`. Because a shell will parse the result, names with characters
// other than letters, digits and `._:@-` are refused, as are tokens other than these and `%%`.
// Errors are fragments of a sentence.
Result<std::string> ExpandProxyCommand(const std::string& command, const ProxyTokens& tokens);

// A running proxy command whose stdin and stdout lead to the node. Killed and reaped on
// destruction.
class SshProxy {
 public:
  // `command` is the result of ExpandProxyCommand(). `stream` receives our end of its stdin and
  // stdout, non-blocking.
  static Result<std::unique_ptr<SshProxy>> Start(const std::string& command, UniqueFd& stream);

  SshProxy(const SshProxy&) = delete;
  SshProxy& operator=(const SshProxy&) = delete;
  ~SshProxy();

  // Returns the command's stderr so far.
  std::string StderrTail() const { return child_->StderrTail(); }

 private:
  explicit SshProxy(std::unique_ptr<ChildProcess> child) : child_(std::move(child)) {}

  const std::unique_ptr<ChildProcess> child_;
};

}  // namespace dslaunch
