#include "hostfiles/host_words.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <utility>

namespace dslaunch {
namespace {

constexpr size_t kMaxQuotedBytes = 60;
constexpr int kMaxPort = 65'535;

bool AllDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the value of a text of digits, or `max` + 1 if the value exceeds `max`.
int ReadCapped(std::string_view digits, int max) {
  int value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return status != std::errc() ? max + 1 : std::min(value, max + 1);
}

bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._-+").find(c) != std::string_view::npos;
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, IsNameChar);
}

// Returns whether the text is an IPv6 address, with or without a zone.
bool IsIpv6(std::string_view text) {
  const size_t percent = text.find('%');
  if (percent != std::string_view::npos && !IsPlainName(text.substr(percent + 1))) return false;
  const std::string address(text.substr(0, percent));
  in6_addr parsed;
  return address.find('\0') == std::string::npos &&
         inet_pton(AF_INET6, address.c_str(), &parsed) == 1;
}

bool IsUserName(std::string_view name) {
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, [](char c) {
    return IsNameChar(c) || c == '@' || c == '$' || c == '\\';
  });
}

// Parses NAME, NAME:PORT, an IPv6 address or [IPv6]:PORT, and sets the host and port of `host`.
Result<void> ParseAddress(std::string_view address, std::string_view token, const Place& place,
                          Host& host) {
  std::string_view port;
  bool has_port = false;
  if (!address.empty() && address.front() == '[') {
    const size_t close = address.find(']');
    if (close == std::string_view::npos || !IsIpv6(address.substr(1, close - 1))) {
      return place.Bad(token, "no IPv6 address in brackets; write [ADDRESS] or [ADDRESS]:PORT");
    }
    const std::string_view after = address.substr(close + 1);
    if (!after.empty() && after.front() != ':') {
      return place.Bad(token, "text after the bracket; write [ADDRESS]:PORT");
    }
    has_port = !after.empty();
    if (has_port) port = after.substr(1);
    host.host = address.substr(1, close - 1);
  } else if (std::count(address.begin(), address.end(), ':') > 1) {
    if (!IsIpv6(address)) {
      return place.Bad(token, "not an IPv6 address; write NAME:PORT or [ADDRESS]:PORT");
    }
    host.host = address;
  } else {
    const size_t colon = address.find(':');
    has_port = colon != std::string_view::npos;
    if (has_port) port = address.substr(colon + 1);
    host.host = address.substr(0, colon);
    if (host.host.empty()) return place.Bad(token, "no host name; write NAME slots=N");
    if (!IsPlainName(host.host)) {
      return place.Bad(token,
                       "not a host name (letters, digits, '.', '-', '_' and '+', no '-' first); "
                       "for anything else make an alias in ~/.ssh/config");
    }
  }
  if (has_port) {
    DSL_TRY_ASSIGN(host.port, ParsePort(port, token, place));
  }
  return {};
}

// Returns a key that is equal for two hosts on the same SSH server, even with different accounts.
std::string ServerKey(const Host& host) {
  std::string key = host.host;
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return key + '\n' + std::to_string(host.port == 0 ? 22 : host.port);
}

}  // namespace

Error Place::Bad(std::string_view token, const std::string& what_and_fix) const {
  std::string quoted;
  for (const char c : token.substr(0, kMaxQuotedBytes)) {
    if (c >= 0x20 && c < 0x7f) {
      quoted += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
      quoted += escaped;
    }
  }
  if (token.size() > kMaxQuotedBytes) quoted += "...";
  const std::string where = line == 0 ? path : path + ":" + std::to_string(line);
  return {ExitCode::kBadInput, where + ": '" + quoted + "': " + what_and_fix};
}

Result<void> ParseHostName(std::string_view token, const Place& place, Host& host) {
  host.name = token;
  const size_t at = token.rfind('@');
  if (at != std::string_view::npos) {
    host.user = token.substr(0, at);
    if (!IsUserName(host.user)) {
      return place.Bad(token, "not a user name before '@'; write USER@NAME slots=N");
    }
    token.remove_prefix(at + 1);
  }
  return ParseAddress(token, host.name, place, host);
}

Result<void> CheckAddress(std::string_view text, const Place& place) {
  if (IsPlainName(text) || IsIpv6(text)) return {};
  return place.Bad(text,
                   "not a host name (letters, digits, '.', '-', '_' and '+', no '-' first) or IP "
                   "address; user and port have keys of their own");
}

Result<void> CheckUser(std::string_view text, const Place& place) {
  if (IsUserName(text)) return {};
  return place.Bad(text, "not a user name; write user: NAME, as it logs in there");
}

Result<int> ParsePort(std::string_view digits, std::string_view token, const Place& place) {
  const int port = AllDigits(digits) ? ReadCapped(digits, kMaxPort) : 0;
  if (port < 1 || port > kMaxPort) {
    return place.Bad(token, "port must be a number from 1 to " + std::to_string(kMaxPort));
  }
  return port;
}

Result<int> ParseSlotCount(std::string_view digits, std::string_view word, const Place& place) {
  if (!AllDigits(digits)) {
    return place.Bad(word, "slots must be a whole number from 1 to " + std::to_string(kMaxSlots));
  }
  const int slots = ReadCapped(digits, kMaxSlots);
  if (slots == 0) {
    return place.Bad(word,
                     "a node without slots runs nothing; give it 1 or more, or remove the line");
  }
  if (slots > kMaxSlots) {
    return place.Bad(word, "more than " + std::to_string(kMaxSlots) +
                               " slots on one node; slots is the number of ranks, usually of GPUs");
  }
  return slots;
}

Result<void> HostList::Add(Host host, const Place& place) {
  const auto [server, is_new] = line_of_server_.emplace(ServerKey(host), place.line);
  const auto [name, has_new_name] = line_of_name_.emplace(host.name, place.line);
  if (!is_new || !has_new_name) {
    const int first = is_new ? name->second : server->second;
    return place.Bad(host.name, (first == 0 ? std::string("given twice")
                                            : "already on line " + std::to_string(first)) +
                                    "; write a node once, with all its slots");
  }
  hosts_.push_back(std::move(host));
  return {};
}

Result<std::vector<Host>> HostList::Take(const std::string& path, const std::string& hint) {
  if (hosts_.empty()) {
    return Error{ExitCode::kBadInput, path + ": no hosts in this hostfile; " + hint};
  }
  return std::move(hosts_);
}

}  // namespace dslaunch
