#include "base/os/socket_diag.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/unique_fd.h"

namespace dslaunch {
namespace {

// Limit of the wait for the kernel, which usually answers at once.
constexpr time_t kKernelAnswersWithinS = 1;

struct DiagRequest {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

bool Matches(const inet_diag_msg& socket, const TcpQuery& query) {
  const auto is = [](__be16 port, int wanted) { return wanted == 0 || ntohs(port) == wanted; };
  return socket.idiag_state == query.state && is(socket.id.idiag_sport, query.own_port) &&
         is(socket.id.idiag_dport, query.peer_port);
}

// Sets the counters of `socket` from its attributes. An older kernel returns a shorter tcp_info,
// whose missing counters are 0.
void ReadCounters(const char* bytes, size_t size, TcpSocket& socket) {
  while (size >= sizeof(rtattr)) {
    rtattr attribute{};
    std::memcpy(&attribute, bytes, sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > size) return;
    if (attribute.rta_type == INET_DIAG_INFO) {
      tcp_info info{};
      std::memcpy(&info, bytes + sizeof attribute,
                  std::min<size_t>(sizeof info, attribute.rta_len - sizeof attribute));
      socket.sent_bytes = info.tcpi_bytes_acked;
      socket.received_bytes = info.tcpi_bytes_received;
      return;
    }
    const size_t aligned = std::min<size_t>(size, RTA_ALIGN(attribute.rta_len));
    bytes += aligned;
    size -= aligned;
  }
}

TcpSocket ToSocket(const inet_diag_msg& message) {
  TcpSocket socket;
  socket.inode = message.idiag_inode;
  socket.user = message.idiag_uid;
  socket.own_port = ntohs(message.id.idiag_sport);
  socket.peer_port = ntohs(message.id.idiag_dport);
  socket.unread_bytes = message.idiag_rqueue;
  return socket;
}

// Adds the sockets in one datagram of the kernel that match `query` to `sockets`. Returns true if
// this was the last datagram, false if more follow, and nullopt if the kernel reported an error.
std::optional<bool> TakeSockets(const char* bytes, size_t size, const TcpQuery& query,
                                std::vector<TcpSocket>& sockets) {
  while (size >= sizeof(nlmsghdr)) {
    nlmsghdr header{};
    std::memcpy(&header, bytes, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > size) return std::nullopt;
    if (header.nlmsg_type == NLMSG_DONE) return true;
    inet_diag_msg message{};
    constexpr size_t kFixed = NLMSG_LENGTH(sizeof message);
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || header.nlmsg_len < kFixed) return std::nullopt;
    std::memcpy(&message, bytes + NLMSG_HDRLEN, sizeof message);
    if (Matches(message, query)) {
      TcpSocket& socket = sockets.emplace_back(ToSocket(message));
      if (query.counters) ReadCounters(bytes + kFixed, header.nlmsg_len - kFixed, socket);
    }
    const size_t aligned = NLMSG_ALIGN(header.nlmsg_len);
    if (aligned >= size) break;
    bytes += aligned;
    size -= aligned;
  }
  return false;
}

}  // namespace

std::optional<std::vector<TcpSocket>> ListTcpSockets(int family, const TcpQuery& query) {
  const UniqueFd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const timeval timeout{kKernelAnswersWithinS, 0};
  if (!kernel ||
      ::setsockopt(kernel.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0) {
    return std::nullopt;
  }
  DiagRequest request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = static_cast<__u8>(family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  if (query.counters) request.body.idiag_ext = 1u << (INET_DIAG_INFO - 1);
  request.body.idiag_states = 1u << query.state;
  request.body.id.idiag_sport = htons(static_cast<uint16_t>(query.own_port));
  request.body.id.idiag_dport = htons(static_cast<uint16_t>(query.peer_port));
  if (::send(kernel.get(), &request, sizeof request, 0) != sizeof request) return std::nullopt;
  std::vector<TcpSocket> sockets;
  std::array<char, 32768> answer;
  while (true) {
    const ssize_t size = ::recv(kernel.get(), answer.data(), answer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    const std::optional<bool> is_last =
        TakeSockets(answer.data(), static_cast<size_t>(size), query, sockets);
    if (!is_last) return std::nullopt;
    if (*is_last) return sockets;
  }
}

}  // namespace dslaunch
