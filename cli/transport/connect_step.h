// The steps of reaching a node, by which progress and failures are named.
#pragma once

#include <string>

namespace dslaunch {

// The progress of a connection, in this order. Two exceptions: copying the agent follows a start
// that did not find it, and an attempt that sshd turned away starts again. After a failure, this is
// the step that failed.
enum class ConnectStep {
  kResolve,    // ssh_config and the host's address
  kConnect,    // TCP, ProxyJump or ProxyCommand
  kHandshake,  // versions and keys of the connection
  kHostKey,    // known_hosts
  kLogin,      // the user's key or password
  kStartAgent,
  kCopyAgent,
  kRunning
};

// Returns "resolve", "copy agent", ... for messages.
const char* StepName(ConnectStep step);

// Returns the message, with a hint, for a step that reached its deadline.
std::string TimedOutAt(ConnectStep step);

}  // namespace dslaunch
