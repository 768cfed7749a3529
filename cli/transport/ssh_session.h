// One logged-in SSH connection to a node: the edge to libssh, which is used in non-blocking mode
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
#include "cli/transport/ssh_config.h"
#include "cli/transport/ssh_configs.h"
#include "cli/transport/ssh_proxy.h"
#include "cli/transport/ssh_stream.h"
#include "cli/transport/transport.h"

namespace dslaunch {

// Where a connection stands. In this order, but that copying the agent comes after a start that did
// not find it, and that an attempt which sshd turned away begins anew. When it fails, this is the
// step that failed.
enum class SshStep {
  kResolve,    // ssh_config, and the host name's address
  kConnect,    // TCP, or the way through ProxyJump or ProxyCommand
  kHandshake,  // versions and keys of the connection
  kHostKey,    // known_hosts
  kLogin,      // the user's key or password
  kStartAgent,
  kCopyAgent,
  kRunning
};

struct SshOptions {
  // An ssh_config file to read; empty: ~/.ssh/config and /etc/ssh/ssh_config.
  std::string config_file = {};
  // What it says about hosts; shared by all copies of these options.
  std::shared_ptr<SshConfigs> configs = std::make_shared<SshConfigs>();
  // Told of each step as it begins, on a thread of the connection's; may be empty.
  std::function<void(SshStep)> on_step = {};
  // --ssh_command: the program and its options that take the place of SshSession; empty: none.
  std::vector<std::string> command = {};

  // Set to what a login needs that dslaunch's own client lacks and the system's ssh has, a fragment
  // of a sentence; may be null.
  std::shared_ptr<std::atomic<const char*>> unsupported = {};

  // False: the user is asked no question whose answer is not known yet, as in the midst of a job.
  bool may_ask_anew = true;

  // Of a host of somebody's ProxyJump: whom it leads to, the node first. Empty: it is the node.
  std::vector<std::string> leads_to = {};
  // The ProxyJump to this host where another's ssh_config says it; nullopt: its own.
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

// What a connection attempt shares with other threads.
struct SshControl {
  int stop_fd = -1;  // readable: give up
  std::atomic<SshStep> step{SshStep::kResolve};
  std::function<void(SshStep)> on_step;
  // By how much the attempt's deadline has moved: waiting for its turn and for the user's answer is
  // not the node's fault.
  std::atomic<milliseconds::rep> granted_ms{0};
  SshControl* outer = nullptr;  // of the connection to which this one leads; outlives this

  void Begin(SshStep next) {
    step = next;
    if (on_step) on_step(next);
  }
  void Grant(milliseconds time) {
    for (SshControl* control = this; control != nullptr; control = control->outer)
      control->granted_ms += time.count();
  }
};

// Grants a wait of `longest` while it lives, and takes back what was not used.
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

// One thread's at a time. Every wait ends with its deadline or the control's stop.
class SshSession {
 public:
  // Connects, enforces the host key and logs in, through the hosts of ProxyJump where ssh_config
  // says so. At most LoginGate's number of logins at once; one that sshd turns away before it asks
  // who is there is tried again. `deadline` moves with `control`'s grants. Errors name the node, or
  // the host on the way to it, what is wrong and a hint: kUnavailable, kBadInput for
  // ssh_config, or kNoPermission when a key was refused.
  static Result<std::unique_ptr<SshSession>> Open(const NodeTarget& target,
                                                  const SshOptions& options, Deadline deadline,
                                                  SshControl& control);
  ~SshSession();

  // Runs a command on the node without a terminal. The login shell parses `command`: it must be a
  // constant or made of nothing but a constant and hexadecimal numbers.
  Result<std::unique_ptr<SshStream>> Exec(const std::string& command, TailBuffer& stderr_tail,
                                          Deadline deadline);

  // A TCP connection from the node to another host.
  Result<std::unique_ptr<SshStream>> Forward(const std::string& host, int port,
                                             TailBuffer& stderr_tail, Deadline deadline);

  // Handles what has arrived and sends what is due. False when the connection is dead.
  bool Process();

  // Waits for something to Process.
  Result<void> WaitIo(Deadline deadline);

  // True while bytes wait for the socket to take them.
  bool WritePending() const { return (::ssh_get_status(session_.get()) & SSH_WRITE_PENDING) != 0; }

  void Begin(SshStep step) { control_.Begin(step); }
  // Time that does not count as the attempt's, while it lives.
  GrantedWait GrantWait(milliseconds longest) { return GrantedWait(control_, longest); }

  int socket() const { return socket_.get(); }
  int stop_fd() const { return control_.stop_fd; }
  const std::string& address() const { return address_; }
  std::string LastError() const { return ::ssh_get_error(session_.get()); }

  // An error whose message begins with the node and where it is.
  Error Fail(ExitCode code, const std::string& text) const;

 private:
  SshSession(const NodeTarget& target, const SshOptions& options, const SshConfig& config,
             Deadline deadline, SshControl& control);

  // ssh_session.cc
  Result<void> Configure();
  Result<void> Establish();
  Result<void> Reach();
  Result<void> Handshake();
  Error HandshakeError() const;
  bool WasTurnedAway() const;
  Deadline By() const;           // the deadline with what was granted
  Deadline ConnectBy() const;    // the same, ssh_config's ConnectTimeout respected
  std::string GateName() const;  // whose logins count together

  // ssh_session_hops.cc
  Result<void> ReachThroughHops();

  // ssh_session_host_key.cc
  Result<void> CheckHostKey();
  Result<void> AcceptNewHostKey(const std::string& fingerprint);

  // ssh_session_login.cc
  Result<void> Login();
  Result<int> LoginWithKeys();
  Result<int> LoginWithAgent(const std::vector<std::string>& listed,
                             std::vector<std::string>& offered);
  Result<int> LoginWithFile(const std::string& path, const SshKey& public_key);
  Result<int> LoginByAsking(int status);
  Result<int> AnswerQuestions();
  Result<int> LoginWithCertificate(const std::string& path, const SshKey& certificate);
  ssh_key ReadPrivateKey(const std::string& path);  // the caller's
  Error LoginError(int status) const;
  const char* MethodOfSystemSsh(int methods) const;
  void NoteUnsupported(const char* what) const {
    if (options_.unsupported) *options_.unsupported = what;
  }

  // Calls `step` until it no longer answers SSH_AGAIN.
  template <class Step>
  Result<int> Drive(Deadline deadline, Step step) {
    while (true) {
      const int status = step();
      if (status != SSH_AGAIN) return status;
      // libssh keeps returning this when the server has ended the session with a message.
      if (::ssh_is_connected(session_.get()) == 0) return SSH_ERROR;
      DSL_TRY(WaitIo(deadline));
    }
  }
  // The same for what answers SSH_AUTH_AGAIN.
  template <class Step>
  Result<int> DriveLogin(Step step) {
    return Drive(By(), [&step] {
      const int status = step();
      return status == SSH_AUTH_AGAIN ? SSH_AGAIN : status;
    });
  }

  const NodeTarget target_;
  const SshOptions options_;
  SshConfig config_;  // empty once logged in
  const Deadline deadline_;
  SshControl& control_;
  std::string where_;                // user@host port N
  std::string address_;              // numeric; behind a proxy as configured
  std::vector<std::string> tried_;   // keys that were offered to the server
  std::vector<std::string> locked_;  // of these, those whose passphrase was not given
  bool asked_ = false;               // the user was asked for a secret
  std::unique_ptr<NodeLink> hop_;    // the connection that leads here
  std::unique_ptr<SshProxy> proxy_;  // likewise
  UniqueFd socket_;                  // the session has a duplicate, which it closes
  std::unique_ptr<ssh_session_struct, FreeSshSession> session_;
  std::unique_ptr<ssh_event_struct, FreeSshEvent> event_;
};

// "node 'node3'", or "host 'gate' on the way" for a host of its ProxyJump.
std::string SubjectOf(const NodeTarget& target, const SshOptions& options);

// "resolve", "copy agent"; for people.
const char* StepName(SshStep step);

// The sentence for a deadline that came first, with a hint.
std::string TimedOutAt(SshStep step);

}  // namespace dslaunch
