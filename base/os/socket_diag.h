// Lists the TCP sockets of this network namespace through the kernel's sock_diag interface. Needs
// no privilege.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

// The kernel's number for the state of an established connection.
inline constexpr int kTcpEstablished = 1;
// The kernel's number for the state of a listening socket.
inline constexpr int kTcpListen = 10;

// Selects sockets by their state, their own port and their peer's port; port 0 stands for any port.
struct TcpQuery {
  int state = kTcpEstablished;
  int own_port = 0;
  int peer_port = 0;
  bool counters = false;  // whether to set sent_bytes and received_bytes
};

struct TcpSocket {
  uint64_t inode = 0;  // number in the link /proc/PID/fd/FD, "socket:[NUMBER]"
  uid_t user = 0;
  int own_port = 0;
  int peer_port = 0;
  uint32_t unread_bytes = 0;  // bytes that arrived but that the program has not read
  uint64_t sent_bytes = 0;    // bytes that were sent and that the peer has acknowledged
  uint64_t received_bytes = 0;
};

// Returns the sockets of a family (AF_INET or AF_INET6) that match `query`. Returns nullopt if
// sock_diag is missing or filtered, or does not answer within 1 s. A connection between two
// programs of this machine has two sockets.
std::optional<std::vector<TcpSocket>> ListTcpSockets(int family, const TcpQuery& query);

}  // namespace dslaunch
