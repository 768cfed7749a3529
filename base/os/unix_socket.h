// Makes addresses of Unix sockets, connects to them, and checks which user is at the other end.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>
#include <string_view>

namespace dslaunch {

// Returns the address of a socket file; nullopt if the path is longer than the kernel allows.
inline std::optional<sockaddr_un> UnixAddress(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  path.copy(address.sun_path, path.size());
  return address;
}

// Connects `socket` as connect(2) does, with the same result.
inline int ConnectUnix(int socket, const sockaddr_un& address) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// Returns whether the process at the other end of a Unix socket belongs to the user of this
// process.
inline bool IsOwnUser(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace dslaunch
