// Holding a TCP port for rank 0 until it listens there itself, or listening in its place.
#pragma once

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// A port with a socket that listens there, so that no other process of any user can; nothing is
// accepted. After LetOthersListen the socket is bound and does not listen: the port is not given to
// anybody else, but a program that sets SO_REUSEADDR (as c10d's TCPStore and most servers do) can
// bind it and listen. Linux lets any user's program do that.
struct PortReservation {
  UniqueFd socket;
  int port = 0;

  void LetOthersListen() const;
};

enum class PortScope { kAllAddresses, kLoopback };

// `port` 0 takes any that is free at all addresses, where rank 0 may listen. With kLoopback only
// programs of this machine can connect to the socket (127.0.0.1) while it listens. kUnavailable
// when the port is taken.
Result<PortReservation> ReservePort(int port, PortScope scope = PortScope::kAllAddresses);

// Any free port of this machine's loopback (127.0.0.1), with a socket that listens there already:
// nobody else can, and no other machine can connect.
Result<PortReservation> ListenOnLoopback();

}  // namespace dslaunch
