#include "agent/host/port_listeners.h"

#include <sys/socket.h>

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/proc_text.h"
#include "base/os/socket_diag.h"

namespace dslaunch {
namespace {

constexpr std::string_view kListens = "0A";  // hexadecimal number of the state TCP_LISTEN

// Returns the port of an address such as "0100007F:1F90"; -1 if the address is malformed.
int PortOf(std::string_view address) {
  const std::string_view digits = address.substr(address.rfind(':') + 1);
  int port = -1;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port, /*base=*/16);
  return error == std::errc() && end == digits.data() + digits.size() ? port : -1;
}

std::optional<std::set<uid_t>> UsersOf(int family, const TcpQuery& query) {
  const std::optional<std::vector<TcpSocket>> sockets = ListTcpSockets(family, query);
  if (!sockets) return std::nullopt;
  std::set<uid_t> users;
  for (const TcpSocket& socket : *sockets) users.insert(socket.user);
  return users;
}

}  // namespace

std::set<uid_t> ListenersIn(std::istream& table, int port) {
  std::set<uid_t> users;
  std::string line;
  std::getline(table, line);  // skips the table's column headers
  while (std::getline(table, line)) {
    std::string_view rest = line;
    TakeWord(rest);  // skips the number of the entry
    const std::string_view own_address = TakeWord(rest);
    TakeWord(rest);  // skips the address of the peer
    const std::string_view state = TakeWord(rest);
    if (state != kListens) break;
    // The user follows the queues, timers and retransmits, so these three are skipped.
    for (int skipped = 0; skipped < 3; ++skipped) TakeWord(rest);
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
  const TcpQuery query = {.state = kTcpListen, .own_port = port};
  std::optional<std::set<uid_t>> v4 = UsersOf(AF_INET, query);
  std::optional<std::set<uid_t>> v6 = v4 ? UsersOf(AF_INET6, query) : std::nullopt;
  if (v4 && v6) {
    v6->merge(*v4);
    return *std::move(v6);
  }
  return ListenersByTables(port);
}

// A local connection has two sockets, of which the client's socket counts, so sockets with peer
// port `port` are listed.
std::optional<std::set<uid_t>> ConnectedTo(int port) {
  return UsersOf(AF_INET, {.state = kTcpEstablished, .peer_port = port});
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
