// A TCP connection to a node's sshd.
#pragma once

#include <functional>
#include <string>

#include "proto/contract/deadline.h"
#include "proto/contract/error.h"
#include "proto/contract/unique_fd.h"

namespace dslaunch {

enum class Waited { kReady, kDeadline, kStopped };

// Waits until `fd` has one of `events` or is broken. kStopped when `stop_fd` became readable.
Waited WaitForFd(int fd, short events, int stop_fd, Deadline deadline);

struct Dialed {
  UniqueFd socket;      // connected, non-blocking, TCP_NODELAY
  std::string address;  // the peer's, numeric
};

// Tries each address that `host` resolves to in turn, each with its share of the time. Blocks in
// the resolver beyond `deadline` where that does. Errors are fragments for a sentence that names
// the node: "cannot ...". `on_resolved` is called between the two.
Result<Dialed> Dial(const std::string& host, int port, Deadline deadline, int stop_fd,
                    const std::function<void()>& on_resolved);

}  // namespace dslaunch
