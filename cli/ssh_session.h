// One logged-in SSH connection to a node: the edge to libssh, which is used in non-blocking mode
// throughout.
#pragma once

#include <libssh/libssh.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "cli/ssh_proxy.h"
#include "cli/ssh_stream.h"
#include "cli/transport.h"
#include "proto/contract/deadline.h"
#include "proto/contract/error.h"
#include "proto/contract/unique_fd.h"

namespace dslaunch {

// Where a connection stands. Copying the agent comes after a start that did not find it.
enum class SshStep {
  kResolve,
  kConnect,
  kHandshake,
  kHostKey,
  kLogin,
  kStartAgent,
  kCopyAgent,
  kRunning
};

struct SshOptions {
  // An ssh_config file to read; empty: ~/.ssh/config and /etc/ssh/ssh_config.
  std::string config_file;
  // Told of each step as it begins, on the connection's thread; may be empty.
  std::function<void(SshStep)> on_step;
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

// What a connection attempt is told by and tells to other threads.
struct SshControl {
  int stop_fd = -1;  // readable: give up
  std::atomic<SshStep> step{SshStep::kResolve};
  std::function<void(SshStep)> on_step;

  void Begin(SshStep next) {
    step = next;
    if (on_step) on_step(next);
  }
};

// Belongs to one thread for its whole life. Every wait ends with its deadline or the control's
// stop.
class SshSession {
 public:
  // Connects, enforces the host key and logs in. Errors name the node, the step and the way out:
  // kUnavailable, or kNoPermission when a key was refused.
  static Result<std::unique_ptr<SshSession>> Open(const NodeTarget& target,
                                                  const SshOptions& options, Deadline deadline,
                                                  SshControl& control);

  // Runs a command on the node without a terminal. The login shell parses `command`: it must be a
  // constant or made of nothing but a constant and hexadecimal numbers.
  Result<std::unique_ptr<SshStream>> Exec(const std::string& command, TailBuffer& stderr_tail,
                                          Deadline deadline);

  // Handles what has arrived and sends what is due. False when the connection is dead.
  bool Process();

  // Waits for something to Process.
  Result<void> WaitIo(Deadline deadline);

  // True while bytes wait for the socket to take them.
  bool WritePending() const { return (::ssh_get_status(session_.get()) & SSH_WRITE_PENDING) != 0; }

  void Begin(SshStep step) { control_.Begin(step); }

  int socket() const { return socket_.get(); }
  int stop_fd() const { return control_.stop_fd; }
  const std::string& address() const { return address_; }
  std::string LastError() const { return ::ssh_get_error(session_.get()); }

  // An error whose message begins with the node and where it is.
  Error Fail(ExitCode code, const std::string& text) const;

 private:
  SshSession(const NodeTarget& target, SshControl& control) : target_(target), control_(control) {}

  Result<void> Configure(const SshOptions& options);
  Result<void> Reach(Deadline deadline);
  Result<void> Handshake(Deadline deadline);
  Result<void> CheckHostKey();
  Result<void> Login(Deadline deadline);
  Error HandshakeError() const;
  Error LoginError(int status, const std::string& keys_tried) const;

  // Calls `step` until it no longer answers SSH_AGAIN.
  template <class Step>
  Result<int> Drive(Deadline deadline, Step step);

  NodeTarget target_;
  SshControl& control_;
  std::string where_;  // user@host:port as resolved from the configuration
  std::string host_;   // as known_hosts lists it
  int port_ = 22;
  std::string address_;        // numeric; behind a proxy as configured
  std::string proxy_command_;  // from ssh_config; empty: none
  std::unique_ptr<SshProxy> proxy_;
  UniqueFd socket_;  // the session has a duplicate, which it closes
  std::unique_ptr<ssh_session_struct, FreeSshSession> session_;
  std::unique_ptr<ssh_event_struct, FreeSshEvent> event_;
};

// "resolve", "copy agent"; for people.
const char* StepName(SshStep step);

// The sentence for a deadline that came first, with the way out.
std::string TimedOutAt(SshStep step);

}  // namespace dslaunch
