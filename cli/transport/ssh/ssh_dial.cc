#include "cli/transport/ssh/ssh_dial.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace dslaunch {
namespace {

std::string NumericAddress(const addrinfo& address) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

// Connects `fd` to `address`. Returns 0, or the errno of the failure; ECANCELED if stopped.
int ConnectOne(int fd, const addrinfo& address, Deadline deadline, int stop_fd) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  switch (WaitForFd(fd, POLLOUT, stop_fd, deadline)) {
    case Waited::kDeadline:
      return ETIMEDOUT;
    case Waited::kStopped:
      return ECANCELED;
    case Waited::kReady:
      break;
  }
  int error_number = 0;
  socklen_t size = sizeof error_number;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &size);
  return error_number;
}

std::string Hint(int error_number) {
  switch (error_number) {
    case ECONNREFUSED:
      return "nothing listens there: start sshd on the node, or give its port in the hostfile";
    case ETIMEDOUT:
      return "no answer: check that the node is up and that no firewall drops the port";
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "there is no route: check that the node is up and on this network";
    default:
      return "check that the node is up and that its sshd listens on this port";
  }
}

}  // namespace

Waited WaitForFd(int fd, short events, int stop_fd, Deadline deadline) {
  while (true) {
    pollfd fds[2] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};
    const int ready = ::poll(fds, 2, deadline.PollMs());
    if (fds[1].revents != 0 && ready > 0) return Waited::kStopped;
    if (ready > 0) return Waited::kReady;
    if (ready == 0 && deadline.Expired()) return Waited::kDeadline;
  }
}

Result<AddressList> Resolve(const std::string& host, int port, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) {
    return Error{ExitCode::kUnavailable,
                 "cannot resolve the host name '" + host + "' (" +
                     (status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status)) +
                     "); check its spelling, DNS and /etc/hosts"};
  }
  return AddressList(list, &::freeaddrinfo);
}

Result<Dialed> Dial(const AddressList& addresses, int port, Deadline deadline, int stop_fd) {
  int untried = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next)
    ++untried;
  std::string failures;
  int error_number = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr;
       address = address->ai_next, --untried) {
    UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const std::string numeric = NumericAddress(*address);
    error_number = errno;
    if (fd)
      error_number =
          ConnectOne(fd.get(), *address, Deadline::After(deadline.Left() / untried), stop_fd);
    if (error_number == 0) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      return Dialed{std::move(fd), numeric};
    }
    if (!failures.empty()) failures += ", ";
    failures += numeric + " port " + std::to_string(port) + ": " + std::strerror(error_number);
    if (error_number == ECANCELED) break;
  }
  return Error{ExitCode::kUnavailable, "cannot connect (" + failures + "); " + Hint(error_number)};
}

}  // namespace dslaunch
