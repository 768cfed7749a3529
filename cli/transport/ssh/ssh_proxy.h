// Connects to a node through ssh_config's ProxyCommand.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "cli/transport/child_process.h"

namespace dslaunch {

// The values that replace the tokens of a ProxyCommand.
struct ProxyTokens {
  std::string host;  // value of %h, the host to connect to
  int port = 22;     // value of %p, the port
  std::string user;  // value of %r, the remote user
  std::string name;  // value of %n, the host name as the user wrote it
};

// Replaces the tokens of `command`. Because a shell parses the result, refuses names with
// characters other than letters, digits and `._:@-`, and tokens other than those of ProxyTokens and
// `%%`. Errors are fragments of a sentence.
Result<std::string> ExpandProxyCommand(const std::string& command, const ProxyTokens& tokens);

// A running proxy command whose stdin and stdout lead to the node. The destructor kills and reaps
// it.
class SshProxy {
 public:
  // Starts `command`, the result of ExpandProxyCommand(). `stream` receives this process's end of
  // the socket that is the command's stdin and stdout, non-blocking.
  static Result<std::unique_ptr<SshProxy>> Start(const std::string& command, UniqueFd& stream);

  SshProxy(const SshProxy&) = delete;
  SshProxy& operator=(const SshProxy&) = delete;
  ~SshProxy();

  // Returns the stderr that the command has written so far.
  std::string StderrTail() const { return child_->StderrTail(); }

 private:
  explicit SshProxy(std::unique_ptr<ChildProcess> child) : child_(std::move(child)) {}

  const std::unique_ptr<ChildProcess> child_;
};

}  // namespace dslaunch
