#include "base/os/pass_fd.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace dslaunch {
namespace {

// A buffer for the control data of a message with one descriptor.
union Control {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

}  // namespace

long SendSomeWithFd(int socket, std::string_view bytes, int fd) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  if (fd >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

bool SendWithFd(int socket, std::string_view bytes, int fd) {
  while (!bytes.empty()) {
    const long sent = SendSomeWithFd(socket, bytes, fd);
    if (sent < 0) return false;
    fd = -1;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

long ReceiveWithFd(int socket, char* bytes, size_t size, UniqueFd& fd) {
  iovec part = {bytes, size};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof received);
    fd.Reset(received);
  }
  return got;
}

}  // namespace dslaunch
