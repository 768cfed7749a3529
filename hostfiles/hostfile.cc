#include "hostfiles/hostfile.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "proto/contract/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxQuotedBytes = 60;
constexpr std::string_view kSlotsKey = "slots=";

// Where in which file; makes the messages.
struct Place {
  const std::string& path;
  int line;

  Error Bad(std::string_view token, const std::string& what_and_fix) const {
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
    return {ExitCode::kBadInput,
            path + ":" + std::to_string(line) + ": '" + quoted + "': " + what_and_fix};
  }
};

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Splits the next blank-separated word off `rest`; empty at its end.
std::string_view TakeWord(std::string_view& rest) {
  while (!rest.empty() && IsBlank(rest.front())) rest.remove_prefix(1);
  const size_t size =
      static_cast<size_t>(std::find_if(rest.begin(), rest.end(), IsBlank) - rest.begin());
  const std::string_view word = rest.substr(0, size);
  rest.remove_prefix(size);
  return word;
}

bool AllDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The number in a text of digits, capped at `max` + 1.
int ReadCapped(std::string_view digits, int max) {
  int value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return status != std::errc() ? max + 1 : std::min(value, max + 1);
}

bool IsIpv6(std::string_view text) {
  in6_addr address;
  return inet_pton(AF_INET6, std::string(text.substr(0, text.find('%'))).c_str(), &address) == 1;
}

bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("._-+", c) != nullptr;
}

// Fills host and port from `address`: NAME, NAME:PORT, an IPv6 address, or [IPv6]:PORT.
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
    const auto bad = std::find_if_not(host.host.begin(), host.host.end(), IsNameChar);
    if (bad != host.host.end() || host.host.front() == '-') {
      return place.Bad(token,
                       "not a host name (letters, digits, '.', '-', '_' and '+', no '-' first); "
                       "for anything else make an alias in ~/.ssh/config");
    }
  }
  if (!has_port) return {};
  host.port = AllDigits(port) ? ReadCapped(port, 65535) : 0;
  if (host.port < 1 || host.port > 65535) {
    return place.Bad(token, "port must be a number from 1 to 65535");
  }
  return {};
}

Result<void> ParseName(std::string_view token, const Place& place, Host& host) {
  host.name = token;
  const size_t at = token.rfind('@');
  if (at != std::string_view::npos) {
    host.user = token.substr(0, at);
    const bool plain = std::all_of(host.user.begin(), host.user.end(), [](char c) {
      return IsNameChar(c) || c == '@' || c == '$' || c == '\\';
    });
    if (host.user.empty() || host.user.front() == '-' || !plain) {
      return place.Bad(token, "not a user name before '@'; write USER@NAME slots=N");
    }
    token.remove_prefix(at + 1);
  }
  return ParseAddress(token, host.name, place, host);
}

Result<int> ParseSlots(std::string_view word, std::string_view name, const Place& place) {
  const std::string way_out =
      "write '" + std::string(name.substr(0, kMaxQuotedBytes)) + " slots=N', N ranks (GPUs)";
  if (word.empty()) return place.Bad(name, "no slots given; " + way_out);
  if (word.substr(0, kSlotsKey.size()) != kSlotsKey) {
    return place.Bad(word, "not slots=N; " + way_out + ", without blanks around '='");
  }
  const std::string_view digits = word.substr(kSlotsKey.size());
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

Result<bool> ParseSpare(std::string_view word, const Place& place) {
  if (word.empty() || word == "spare=false") return false;
  if (word == "spare=true") return true;
  if (word.substr(0, word.find('=')) == "spare") {
    return place.Bad(word,
                     "spare must be true or false; write spare=true for a node that gets "
                     "ranks only in place of a lost one");
  }
  return place.Bad(word, "nothing may follow slots=N but spare=true and a '# comment'; remove it");
}

// A Host with an empty name: the line holds none.
Result<Host> ParseLine(std::string_view line, const Place& place) {
  if (line.size() > kMaxHostLineBytes) {
    return place.Bad(line, "longer than " + std::to_string(kMaxHostLineBytes) +
                               " bytes; one node a line, NAME slots=N");
  }
  line = line.substr(0, line.find('#'));
  const auto control = std::find_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
  if (control != line.end()) {
    return place.Bad(line, "control character; a hostfile is plain text, NAME slots=N a line");
  }
  Host host;
  host.line = place.line;
  const std::string_view name = TakeWord(line);
  if (name.empty()) return host;
  DSL_TRY(ParseName(name, place, host));
  DSL_TRY_ASSIGN(host.slots, ParseSlots(TakeWord(line), name, place));
  DSL_TRY_ASSIGN(host.spare, ParseSpare(TakeWord(line), place));
  const std::string_view junk = TakeWord(line);
  if (!junk.empty()) return place.Bad(junk, "nothing may follow but a '# comment'; remove it");
  return host;
}

// Two lines that lead to the same SSH server have the same key, whoever logs in.
std::string DuplicateKey(const Host& host) {
  std::string key = host.host;
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return key + '\n' + std::to_string(host.port == 0 ? 22 : host.port);
}

Error CannotRead(const std::string& path, int error_number) {
  return {ExitCode::kBadInput,
          path + ": cannot read the hostfile: " + std::strerror(error_number) +
              "; give an existing file with a line 'NAME slots=N' for each node"};
}

}  // namespace

Result<std::vector<Host>> ParseHostfile(std::string_view text, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  std::vector<Host> hosts;
  std::unordered_map<std::string, int> line_of;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const Place place{path, number};
    DSL_TRY_ASSIGN(Host host, ParseLine(line, place));
    if (host.name.empty()) continue;
    const auto [first, is_new] = line_of.emplace(DuplicateKey(host), number);
    if (!is_new) {
      return place.Bad(host.name, "already on line " + std::to_string(first->second) +
                                      "; write a node once, with all its slots");
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) {
    return Error{ExitCode::kBadInput,
                 path + ": no hosts in this hostfile; write a line 'NAME slots=N' for each node"};
  }
  return hosts;
}

Result<std::vector<Host>> ReadHostfile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return CannotRead(path, errno);
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, errno);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxHostfileBytes) {
      return Error{ExitCode::kBadInput, path + ": larger than 16 MiB; this is not a hostfile"};
    }
  }
  return ParseHostfile(text, path);
}

}  // namespace dslaunch
