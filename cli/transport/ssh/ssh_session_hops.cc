// Implements how a session reaches its host through ssh_config's ProxyJump. `ssh -J` is not used,
// because its output does not reliably show which host failed or which host's key is unknown.
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "cli/transport/ssh/ssh_session.h"
#include "cli/transport/ssh/transport_ssh.h"

namespace dslaunch {

// Connects through the last host of ProxyJump, which is itself reached through the hosts before it.
// The first host uses its own configuration.
Result<void> SshSession::ReachThroughHops() {
  const SshHop& last = config_.proxy_jump.back();
  SshOptions options;
  options.config_file = options_.config_file;
  options.configs = options_.configs;
  options.unsupported = options_.unsupported;
  options.may_ask_again = options_.may_ask_again;
  options.leads_to = options_.leads_to;
  options.leads_to.push_back(target_.host);
  if (config_.proxy_jump.size() > 1) {
    options.proxy_jump.emplace(config_.proxy_jump.begin(), config_.proxy_jump.end() - 1);
  }
  if (std::ranges::find(options.leads_to, last.host) != options.leads_to.end()) {
    return Fail(ExitCode::kBadInput, "ssh_config's ProxyJump leads to '" + last.host +
                                         "' twice; give that host a `ProxyJump none`");
  }
  const auto forward = [host = config_.host_name, port = config_.port](
                           SshSession& session, TailBuffer& stderr_tail, Deadline deadline) {
    return session.Forward(host, port, stderr_tail, deadline);
  };
  Result<std::unique_ptr<SshLink>> link = SshLink::Open(
      {last.host, last.host, last.port, last.user}, options, forward, ConnectBy(), &control_);
  if (!link) return Fail(link.error().code, link.error().message);
  hop_ = std::move(*link);
  socket_ = hop_->TakeFd();
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  address_ = config_.host_name;
  return {};
}

}  // namespace dslaunch
