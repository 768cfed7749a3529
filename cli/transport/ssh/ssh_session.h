// Implements a logged-in SSH connection to a node. Wraps libssh, which is used in non-blocking mode
// throughout.
#pragma once

#include <libssh/libssh.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "cli/transport/connect_step.h"
#include "cli/transport/ssh/ssh_config.h"
#include "cli/transport/ssh/ssh_configs.h"
#include "cli/transport/ssh/ssh_proxy.h"
#include "cli/transport/ssh/ssh_stream.h"
#include "cli/transport/transport.h"

namespace dslaunch {

struct SshOptions {
  // The ssh_config file to read; empty for ~/.ssh/config and /etc/ssh/ssh_config.
  std::string config_file = {};
  // Cache of ssh_config, shared by all copies of these options.
  std::shared_ptr<SshConfigs> configs = std::make_shared<SshConfigs>();
  // Receives each step as it begins, on a thread of the connection; may be empty.
  std::function<void(ConnectStep)> on_step = {};
  // The program, with options, that replaces SshSession (--ssh_command); empty to use SshSession.
  std::vector<std::string> command = {};

  // If not null, Open sets it to a fragment of a sentence that names the feature that a login needs
  // and only the system's ssh supports.
  std::shared_ptr<std::atomic<const char*>> unsupported = {};

  // True if the user may be asked questions whose answers are not yet known; false, for example, in
  // the middle of a job.
  bool may_ask_again = true;

  // For a host of a ProxyJump: the hosts that are reached through it, the node first. Empty for the
  // node.
  std::vector<std::string> leads_to = {};
  // The ProxyJump to this host if another host's configuration defines it; nullopt to use the
  // configuration of this host.
  std::optional<std::vector<SshHop>> proxy_jump = {};
};

struct FreeSshSession {
  void operator()(ssh_session session) const { ::ssh_free(session); }
};
struct FreeSshEvent {
  void operator()(ssh_event event) const { ::ssh_event_free(event); }
};
struct FreeSshKey {
  void operator()(ssh_key key) const { ::ssh_key_free(key); }
};
using SshKey = std::unique_ptr<ssh_key_struct, FreeSshKey>;

// The state that a connection attempt shares with other threads, which can stop the attempt.
struct SshControl {
  int stop_fd = -1;  // descriptor that becomes readable when the attempt must stop
  std::atomic<ConnectStep> step{ConnectStep::kResolve};
  std::function<void(ConnectStep)> on_step;
  // Time by which the attempt's deadline was extended. Waiting for a turn or for the user does not
  // count against the node.
  std::atomic<milliseconds::rep> granted_ms{0};
  // The connection that this connection leads to, which outlives it; null if none.
  SshControl* outer = nullptr;

  void Begin(ConnectStep next) {
    step = next;
    if (on_step) on_step(next);
  }
  void Grant(milliseconds time) {
    for (SshControl* control = this; control != nullptr; control = control->outer)
      control->granted_ms += time.count();
  }
};

// An extension of an attempt's deadline, for a wait that is not the node's fault. The constructor
// grants `longest`; the destructor takes back the unused time.
class GrantedWait {
 public:
  GrantedWait(SshControl& control, milliseconds longest) : control_(control), longest_(longest) {
    control_.Grant(longest_);
  }
  GrantedWait(const GrantedWait&) = delete;
  GrantedWait& operator=(const GrantedWait&) = delete;
  ~GrantedWait() {
    const auto used = std::chrono::duration_cast<milliseconds>(Clock::now() - began_);
    control_.Grant(std::min(used, longest_) - longest_);
  }
  Deadline deadline() const { return Deadline::At(began_ + longest_); }

 private:
  SshControl& control_;
  const milliseconds longest_;
  const Clock::time_point began_ = Clock::now();
};

// A logged-in connection. Used by one thread at a time. Every wait ends at its deadline or when
// `control` is stopped.
class SshSession {
 public:
  // Connects, enforces the host key and logs in, through the hosts of ssh_config's ProxyJump.
  // LoginGate bounds the number of concurrent logins; a login that sshd turns away before
  // authentication is retried. The grants of `control` extend `deadline`. Errors name the node, or
  // the host on the way to it, the cause and a hint. They are kUnavailable, kBadInput for an
  // invalid ssh_config, or kNoPermission if a key was refused.
  static Result<std::unique_ptr<SshSession>> Open(const NodeTarget& target,
                                                  const SshOptions& options, Deadline deadline,
                                                  SshControl& control);
  ~SshSession();

  // Runs a command on the node without a terminal. The login shell parses `command`, so it must
  // consist of constants and hexadecimal numbers only.
  Result<std::unique_ptr<SshStream>> Exec(const std::string& command, TailBuffer& stderr_tail,
                                          Deadline deadline);

  // Opens a TCP connection from the node to `port` of `host`.
  Result<std::unique_ptr<SshStream>> Forward(const std::string& host, int port,
                                             TailBuffer& stderr_tail, Deadline deadline);

  // Handles received data and sends pending data. Returns false if the connection is broken.
  bool Process();

  // Waits until Process can make progress. Returns an error at the deadline, or if stopped.
  Result<void> WaitIo(Deadline deadline);

  // Returns whether bytes are pending because the socket does not accept them.
  bool WritePending() const { return (::ssh_get_status(session_.get()) & SSH_WRITE_PENDING) != 0; }

  void Begin(ConnectStep step) { control_.Begin(step); }
  // Returns an object during whose life the attempt's time does not count, for `longest` at most.
  GrantedWait GrantWait(milliseconds longest) { return GrantedWait(control_, longest); }

  int socket() const { return socket_.get(); }
  int stop_fd() const { return control_.stop_fd; }
  const std::string& address() const { return address_; }
  std::string LastError() const { return ::ssh_get_error(session_.get()); }

  // Returns an error whose message begins with the node and its address.
  Error Fail(ExitCode code, const std::string& text) const;

 private:
  SshSession(const NodeTarget& target, const SshOptions& options, const SshConfig& config,
             Deadline deadline, SshControl& control);

  // Performs a step of Open() (ssh_session.cc).
  Result<void> Configure();
  Result<void> Establish();
  Result<void> Reach();
  Result<void> Handshake();
  Error HandshakeError() const;
  bool WasTurnedAway() const;
  Deadline By() const;           // returns deadline_ extended by the granted waits
  Deadline ConnectBy() const;    // returns By(), limited by ssh_config's ConnectTimeout
  std::string GateName() const;  // returns the name of the sshd under which LoginGate counts logins

  // Connects through the hosts of ProxyJump (ssh_session_hops.cc).
  Result<void> ReachThroughHops();

  // Checks the server's host key (ssh_session_host_key.cc).
  Result<void> CheckHostKey();
  // Decides about a host key that no file of `paths` lists for any of the host's `names`.
  Result<void> CheckUnlistedHostKey(const std::string& fingerprint,
                                    const std::vector<std::string>& names,
                                    const std::vector<std::string>& paths);
  Result<void> AcceptNewHostKey(const std::string& fingerprint);

  // Logs in with keys or by asking the user (ssh_session_login.cc).
  Result<void> Login();
  class LoginAttempt;
  void NoteUnsupported(const char* what) const {
    if (options_.unsupported) *options_.unsupported = what;
  }

  // Repeats `step` while it returns SSH_AGAIN. Returns its result, or SSH_ERROR if disconnected.
  template <class Step>
  Result<int> Drive(Deadline deadline, Step step) {
    while (true) {
      const int status = step();
      if (status != SSH_AGAIN) return status;
      // libssh returns SSH_AGAIN forever after the server has ended the session with a message, so
      // the connection is checked too.
      if (::ssh_is_connected(session_.get()) == 0) return SSH_ERROR;
      DSL_TRY(WaitIo(deadline));
    }
  }

  const NodeTarget target_;
  const SshOptions options_;
  SshConfig config_;  // cleared after login to save memory
  const Deadline deadline_;
  SshControl& control_;
  std::string where_;                // location of the node for messages: "user@host port N"
  std::string address_;              // numeric address; the configured host if behind a proxy
  bool asked_ = false;               // whether the user was asked for a secret
  std::unique_ptr<NodeLink> hop_;    // the connection to the last host of ProxyJump; null if none
  std::unique_ptr<SshProxy> proxy_;  // the running ProxyCommand; null if none
  UniqueFd socket_;                  // descriptor of this object; libssh closes its own duplicate
  std::unique_ptr<ssh_session_struct, FreeSshSession> session_;
  std::unique_ptr<ssh_event_struct, FreeSshEvent> event_;
};

// Returns the subject of an error: "node 'node3'", or "host 'gate' on the way" for a host of the
// node's ProxyJump.
std::string SubjectOf(const NodeTarget& target, const SshOptions& options);

}  // namespace dslaunch
