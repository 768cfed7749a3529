// Parses the parts that both hostfile formats share: names, numbers and error positions. Pure.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// A position in a file, for error messages.
struct Place {
  const std::string& path;
  int line;  // 0 if `path` is an option rather than a file

  // Returns kBadInput with "path:line: 'token': what; hint". A long or unprintable token is
  // shortened and made printable.
  Error Bad(std::string_view token, const std::string& what_and_fix) const;
};

// Sets the name, user, host and port from "[USER@]NAME[:PORT]". NAME may be an IPv6 address, in
// brackets if a port follows.
Result<void> ParseHostName(std::string_view token, const Place& place, Host& host);

// Check or parse the parts of such a name, each given as a separate token.
Result<void> CheckAddress(std::string_view text, const Place& place);  // without port or brackets
Result<void> CheckUser(std::string_view text, const Place& place);
Result<int> ParsePort(std::string_view digits, std::string_view token, const Place& place);
// Parses a number of slots. `word`: the text in the file that contains the number `digits`, for
// messages.
Result<int> ParseSlotCount(std::string_view digits, std::string_view word, const Place& place);

// Collects the hosts of a file in their order.
class HostList {
 public:
  // Adds a host. Fails if an earlier host has the same SSH server or the same name.
  Result<void> Add(Host host, const Place& place);
  // Returns the hosts. Fails if there are none. Call it once.
  Result<std::vector<Host>> Take(const std::string& path, const std::string& hint);

 private:
  std::vector<Host> hosts_;
  std::unordered_map<std::string, int> line_of_server_;
  std::unordered_map<std::string, int> line_of_name_;
};

}  // namespace dslaunch
