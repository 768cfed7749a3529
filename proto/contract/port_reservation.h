// Reserves a TCP port for rank 0 until rank 0 listens there itself, or listens in its place.
#pragma once

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// A port at which a socket listens without accepting, so that no other process of any user can.
// After LetOthersListen() the socket stays bound but does not listen: the port is not assigned to
// anyone else, but a program that sets SO_REUSEADDR (like c10d's TCPStore and most servers) can
// bind it and listen. Linux allows that for programs of any user.
struct PortReservation {
  UniqueFd socket;
  int port = 0;

  void LetOthersListen() const;
};

enum class PortScope { kAllAddresses, kLoopback };

// Reserves `port`, or with 0 any port that is free at all addresses, since rank 0 may listen at
// any. With kLoopback, only programs of this machine (127.0.0.1) can connect to the socket while it
// listens. Fails with kUnavailable if the port is taken.
Result<PortReservation> ReservePort(int port, PortScope scope = PortScope::kAllAddresses);

// Opens a socket that listens at any free port of this machine's loopback address (127.0.0.1), so
// no other process can listen there and no other machine can connect.
Result<PortReservation> ListenOnLoopback();

}  // namespace dslaunch
