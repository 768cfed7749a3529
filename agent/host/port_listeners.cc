#include "agent/host/port_listeners.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/os/proc_text.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr std::string_view kListens = "0A";  // TCP_LISTEN

// Returns the port of an address such as "0100007F:1F90", or -1 if it is malformed.
int PortOf(std::string_view address) {
  const std::string_view digits = address.substr(address.rfind(':') + 1);
  int port = -1;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port, /*base=*/16);
  return error == std::errc() && end == digits.data() + digits.size() ? port : -1;
}

constexpr int kConnectedState = 1;             // TCP_ESTABLISHED in the kernel's numbering
constexpr int kListenState = 10;               // TCP_LISTEN
constexpr milliseconds kKernelAnswers(1'000);  // usually at once

struct DiagRequest {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

// Selects sockets in one state by their own port and the peer's port; 0: any.
struct SocketQuery {
  int state = kListenState;
  int own_port = 0;
  int other_port = 0;
};

bool Matches(const inet_diag_msg& socket, const SocketQuery& query) {
  const auto is = [](__be16 port, int wanted) { return wanted == 0 || ntohs(port) == wanted; };
  return socket.idiag_state == query.state && is(socket.id.idiag_sport, query.own_port) &&
         is(socket.id.idiag_dport, query.other_port);
}

// Adds the sockets' users in one datagram of the kernel to `users`. Returns true if it was the last
// datagram, and nullopt if the kernel reported an error.
std::optional<bool> TakeUsers(const char* bytes, size_t size, const SocketQuery& query,
                              std::set<uid_t>& users) {
  while (size >= sizeof(nlmsghdr)) {
    nlmsghdr header{};
    std::memcpy(&header, bytes, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > size) return std::nullopt;
    if (header.nlmsg_type == NLMSG_DONE) return true;
    inet_diag_msg socket{};
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        header.nlmsg_len < NLMSG_LENGTH(sizeof socket)) {
      return std::nullopt;
    }
    std::memcpy(&socket, bytes + NLMSG_HDRLEN, sizeof socket);
    if (Matches(socket, query)) users.insert(socket.idiag_uid);
    const size_t aligned = NLMSG_ALIGN(header.nlmsg_len);
    if (aligned >= size) break;
    bytes += aligned;
    size -= aligned;
  }
  return false;
}

// Queries the kernel for the users of these sockets only. Returns nullopt if sock_diag is missing
// or filtered.
std::optional<std::set<uid_t>> AskKernel(int family, const SocketQuery& query) {
  const UniqueFd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const timeval timeout{kKernelAnswers.count() / 1000, 0};
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
  request.body.idiag_states = 1u << query.state;
  request.body.id.idiag_sport = htons(static_cast<uint16_t>(query.own_port));
  request.body.id.idiag_dport = htons(static_cast<uint16_t>(query.other_port));
  if (::send(kernel.get(), &request, sizeof request, 0) != sizeof request) return std::nullopt;
  std::set<uid_t> users;
  std::array<char, 32768> answer;
  while (true) {
    const ssize_t size = ::recv(kernel.get(), answer.data(), answer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    const std::optional<bool> is_last =
        TakeUsers(answer.data(), static_cast<size_t>(size), query, users);
    if (!is_last) return std::nullopt;
    if (*is_last) return users;
  }
}

}  // namespace

std::set<uid_t> ListenersIn(std::istream& table, int port) {
  std::set<uid_t> users;
  std::string line;
  std::getline(table, line);  // column headers
  while (std::getline(table, line)) {
    std::string_view rest = line;
    TakeWord(rest);  // entry number
    const std::string_view own_address = TakeWord(rest);
    TakeWord(rest);  // peer address
    const std::string_view state = TakeWord(rest);
    if (state != kListens) break;
    for (int skipped = 0; skipped < 3; ++skipped) TakeWord(rest);  // queues, timers, retransmits
    const std::string_view user = TakeWord(rest);
    uid_t uid = 0;
    const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), uid);
    if (error == std::errc() && end == user.data() + user.size() && PortOf(own_address) == port)
      users.insert(uid);
  }
  return users;
}

std::optional<uid_t> StrangerAmong(const std::set<uid_t>& users, uid_t own) {
  for (const uid_t user : users) {
    if (user != own && user != 0) return user;
  }
  return std::nullopt;
}

std::set<uid_t> ListenersAt(int port) {
  const SocketQuery query = {.own_port = port};
  std::optional<std::set<uid_t>> v4 = AskKernel(AF_INET, query);
  std::optional<std::set<uid_t>> v6 = v4 ? AskKernel(AF_INET6, query) : std::nullopt;
  if (v4 && v6) {
    v6->merge(*v4);
    return *std::move(v6);
  }
  return ListenersByTables(port);
}

// A local connection has two sockets. The client's socket has `port` as its peer port.
std::optional<std::set<uid_t>> ConnectedTo(int port) {
  return AskKernel(AF_INET, {.state = kConnectedState, .other_port = port});
}

std::set<uid_t> ListenersByTables(int port) {
  std::set<uid_t> users;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(path);
    users.merge(ListenersIn(table, port));
  }
  return users;
}

}  // namespace dslaunch
