// Holding a TCP port for rank 0 until it listens there itself.
#pragma once

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// A port with a socket bound to it that does not listen, so nobody else is given the port, while a
// program that sets SO_REUSEADDR (as c10d's TCPStore and most servers do) can still bind it and
// listen.
struct PortReservation {
  UniqueFd socket;
  int port = 0;
};

// `port` 0 takes any free one. kUnavailable when the port is taken.
Result<PortReservation> ReservePort(int port);

}  // namespace dslaunch
