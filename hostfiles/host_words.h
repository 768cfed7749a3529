// What both forms of a hostfile share: how a node is named, its numbers, and how an error says
// where it is. Pure.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// Where in which file; makes the messages.
struct Place {
  const std::string& path;
  int line;  // 0: `path` is no file, but an option

  // "path:line: 'token': what; hint", kBadInput; a long or unprintable token is made short and
  // printable.
  Error Bad(std::string_view token, const std::string& what_and_fix) const;
};

// Fills name, user, host and port from "[USER@]NAME[:PORT]", where NAME may be an IPv6 address, in
// brackets before a port.
Result<void> ParseHostName(std::string_view token, const Place& place, Host& host);

// The same of its parts, each a token of its own.
Result<void> CheckAddress(std::string_view text, const Place& place);  // without port or brackets
Result<void> CheckUser(std::string_view text, const Place& place);
Result<int> ParsePort(std::string_view digits, std::string_view token, const Place& place);
// `word` is what stands in the file for the number `digits`.
Result<int> ParseSlotCount(std::string_view digits, std::string_view word, const Place& place);

// The hosts of a file, in its order.
class HostList {
 public:
  // Refuses a host that leads to the same SSH server, or has the same name, as one before it.
  Result<void> Add(Host host, const Place& place);
  // An error without any host. Once.
  Result<std::vector<Host>> Take(const std::string& path, const std::string& hint);

 private:
  std::vector<Host> hosts_;
  std::unordered_map<std::string, int> line_of_server_;
  std::unordered_map<std::string, int> line_of_name_;
};

}  // namespace dslaunch
