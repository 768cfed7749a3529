// Reserves a TCP port for rank 0 until rank 0 listens at the port itself, or listens at the port in
// place of rank 0.
#pragma once

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// A port at which a socket listens without accepting, so that no other process of any user can
// listen there. After LetOthersListen() the socket is still bound, but does not listen. The port is
// then not assigned to other processes, but a program that sets SO_REUSEADDR (like c10d's TCPStore
// and most servers) can bind it and listen. Linux allows this to programs of any user.
struct PortReservation {
  UniqueFd socket;
  int port = 0;

  void LetOthersListen() const;
};

enum class PortScope { kAllAddresses, kLoopback };

// Reserves `port`, or if it is 0 any port that is free at all addresses, because rank 0 may listen
// at any address. With kLoopback, only programs of this machine (127.0.0.1) can connect to the
// socket while it listens. Fails with kUnavailable if the port is taken.
Result<PortReservation> ReservePort(int port, PortScope scope = PortScope::kAllAddresses);

// Opens a socket that listens at any free port of this machine's loopback address (127.0.0.1), so
// that no other process can listen at the port and no other machine can connect.
Result<PortReservation> ListenOnLoopback();

}  // namespace dslaunch
