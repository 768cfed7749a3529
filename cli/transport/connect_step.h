// Names the steps of reaching a node, by which progress and failures are reported.
#pragma once

#include <string>

namespace dslaunch {

// The steps of a connection, in order. Two exceptions: kCopyAgent follows kStartAgent if the node
// lacked the agent, and a connection that sshd turned away starts again. After a failure, the
// current step is the step that failed.
enum class ConnectStep {
  kResolve,    // reads ssh_config and resolves the host's address
  kConnect,    // connects by TCP, ProxyJump or ProxyCommand
  kHandshake,  // negotiates the SSH version and session keys
  kHostKey,    // checks the host's key against known_hosts
  kLogin,      // authenticates with the user's key or password
  kStartAgent,
  kCopyAgent,
  kRunning
};

// Returns the step's name for messages, such as "resolve" or "copy agent".
const char* StepName(ConnectStep step);

// Returns the message, with a hint, for a step that did not end by its deadline.
std::string TimedOutAt(ConnectStep step);

}  // namespace dslaunch
