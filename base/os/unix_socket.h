// Makes addresses of Unix sockets, connects to them, and checks the user at the other end.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>
#include <string_view>

namespace dslaunch {

// Returns the address of a socket file; nullopt if the path is too long for the kernel.
inline std::optional<sockaddr_un> UnixAddress(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  path.copy(address.sun_path, path.size());
  return address;
}

// Connects as connect(2) does.
inline int ConnectUnix(int socket, const sockaddr_un& address) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// Returns whether the process at the other end of a Unix socket belongs to this user.
inline bool IsOwnUser(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace dslaunch
