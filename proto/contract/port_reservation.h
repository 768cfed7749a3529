// Reserves a TCP port for rank 0, either until rank 0 listens at the port itself or by listening in
// its place.
#pragma once

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// A reserved port: a socket listens at the port without accepting connections, so that no other
// process of any user can listen there. After LetOthersListen() the socket is still bound, but does
// not listen. The kernel then does not assign the port to other processes, but a program of any
// user that sets SO_REUSEADDR (like c10d's TCPStore and most servers) can bind the port and listen.
struct PortReservation {
  UniqueFd socket;
  int port = 0;

  // Stops listening but keeps the socket bound, so that rank 0 can listen at the port.
  void LetOthersListen() const;
};

enum class PortScope { kAllAddresses, kLoopback };

// Reserves `port`. If `port` is 0, reserves any port that is free at all addresses, because rank 0
// may listen at any address. With kLoopback, only programs of this machine (127.0.0.1) can connect
// to the socket while it listens. Fails with kUnavailable if the port is taken.
Result<PortReservation> ReservePort(int port, PortScope scope = PortScope::kAllAddresses);

// Opens a socket that listens at any free port of this machine's loopback address (127.0.0.1), so
// that no other process can listen at the port and no other machine can connect.
Result<PortReservation> ListenOnLoopback();

}  // namespace dslaunch
