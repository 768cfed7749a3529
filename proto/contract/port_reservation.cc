#include "proto/contract/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace dslaunch {
namespace {

// Binds `fd` to all addresses of a family, or to 127.0.0.1 for kLoopback with AF_INET. Returns the
// bound port, or 0 with errno set on failure.
int Bind(int fd, int family, int port, PortScope scope = PortScope::kAllAddresses) {
  sockaddr_storage address{};
  socklen_t size = 0;
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    v6.sin6_addr = in6addr_any;
    size = sizeof v6;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_port = htons(static_cast<uint16_t>(port));
    v4.sin_addr.s_addr = htonl(scope == PortScope::kLoopback ? INADDR_LOOPBACK : INADDR_ANY);
    size = sizeof v4;
  }
  const int on = 1;
  const int off = 0;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return 0;
  if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0)
    return 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) return 0;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                  : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// Listens at `port`, or at any free port if `port` is 0. Returns the port, or 0 with errno set on
// failure. Another socket first chooses the port and checks that it is free at all addresses,
// because a socket whose port the kernel chose would lose the port when it stops listening.
int Listen(const UniqueFd& socket_fd, int family, int port, PortScope scope) {
  UniqueFd chooser(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (chooser) port = Bind(chooser.get(), family, port);
  if (!chooser || port == 0) return 0;
  const int bound = scope == PortScope::kLoopback ? AF_INET : family;
  port = Bind(socket_fd.get(), bound, port, scope);
  chooser.Reset();
  return port != 0 && listen(socket_fd.get(), 1) == 0 ? port : 0;
}

}  // namespace

void PortReservation::LetOthersListen() const { shutdown(socket.get(), SHUT_RDWR); }

Result<PortReservation> ReservePort(int port, PortScope scope) {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {  // AF_INET is for kernels without IPv6
    PortReservation reservation;
    const int bound = scope == PortScope::kLoopback ? AF_INET : family;
    reservation.socket.Reset(socket(bound, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (reservation.socket) reservation.port = Listen(reservation.socket, family, port, scope);
    if (reservation.port != 0) return reservation;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  return Error{ExitCode::kUnavailable,
               "port " + std::to_string(port) + " for MASTER_PORT: " + strerror(error) +
                   "; choose another with --master_port, or leave it out to take a free one"};
}

Result<PortReservation> ListenOnLoopback() {
  PortReservation reservation;
  reservation.socket.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int fd = reservation.socket.get();
  if (!reservation.socket || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return Error{ExitCode::kUnavailable,
                 std::string("a port of 127.0.0.1 for MASTER_PORT: ") + strerror(errno)};
  }
  reservation.port = ntohs(address.sin_port);
  return reservation;
}

}  // namespace dslaunch
