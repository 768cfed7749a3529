// Makes a TCP connection to a node's sshd.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

enum class Waited { kReady, kDeadline, kStopped };

// Waits until `fd` has one of `events` or is broken. Returns kStopped if `stop_fd` becomes
// readable, kDeadline if the deadline passes.
Waited WaitForFd(int fd, short events, int stop_fd, Deadline deadline);

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Resolves a host name; `family` is AF_UNSPEC, AF_INET or AF_INET6. Blocks in the resolver, which
// has no deadline. Errors of Resolve and Dial are fragments for a sentence that names the node:
// "cannot ...".
Result<AddressList> Resolve(const std::string& host, int port, int family);

struct Dialed {
  UniqueFd socket;      // connected socket, non-blocking, with TCP_NODELAY
  std::string address;  // numeric address of the peer
};

// Connects to the first of the addresses that accepts, trying them in turn. Each address gets an
// equal share of the time. `stop_fd` ends the attempt when it becomes readable.
Result<Dialed> Dial(const AddressList& addresses, int port, Deadline deadline, int stop_fd);

}  // namespace dslaunch
