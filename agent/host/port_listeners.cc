#include "agent/host/port_listeners.h"

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

#include "base/proc_text.h"

namespace dslaunch {
namespace {

constexpr std::string_view kListens = "0A";  // TCP_LISTEN

// The port of "0100007F:1F90"; -1: it is none.
int PortOf(std::string_view address) {
  const std::string_view digits = address.substr(address.rfind(':') + 1);
  int port = -1;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port, /*base=*/16);
  return error == std::errc() && end == digits.data() + digits.size() ? port : -1;
}

}  // namespace

std::set<uid_t> ListenersIn(std::istream& table, int port) {
  std::set<uid_t> users;
  std::string line;
  std::getline(table, line);  // the names of the columns
  while (std::getline(table, line)) {
    std::string_view rest = line;
    TakeWord(rest);  // its number
    const std::string_view own_address = TakeWord(rest);
    TakeWord(rest);  // the other side's address
    const std::string_view state = TakeWord(rest);
    if (state != kListens) break;
    for (int skipped = 0; skipped < 3; ++skipped) TakeWord(rest);  // queues, timers, resends
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
  std::set<uid_t> users;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(path);
    users.merge(ListenersIn(table, port));
  }
  return users;
}

}  // namespace dslaunch
