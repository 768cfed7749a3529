// Makes a connected pair of stream sockets.
#pragma once

#include <sys/socket.h>

#include <cerrno>

#include "base/errno_text.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;
};

// Returns a pair of sockets that are closed on exec. Fails with kInternal if no descriptors are
// left.
inline Result<SocketPair> MakeSocketPair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Error{ExitCode::kInternal, "socketpair: " + ErrnoText(errno)};
  return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace dslaunch
