// Parses the parts that both hostfile formats share: names, numbers and error positions. All
// functions are pure.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// A line of a file or an option, named in error messages.
struct Place {
  const std::string& path;
  int line;  // 0 if `path` is an option rather than a file

  // Returns the error kBadInput with the message "path:line: 'token': what; hint". Shortens a long
  // token and makes an unprintable token printable.
  Error Bad(std::string_view token, const std::string& what_and_fix) const;
};

// Parses "[USER@]NAME[:PORT]" and sets the name, user, host and port of `host`. NAME may be an IPv6
// address, which needs brackets if a port follows.
Result<void> ParseHostName(std::string_view token, const Place& place, Host& host);

// Checks or parses one part of a host's name, given as a separate token. An address has no port or
// brackets.
Result<void> CheckAddress(std::string_view text, const Place& place);
Result<void> CheckUser(std::string_view text, const Place& place);
Result<int> ParsePort(std::string_view digits, std::string_view token, const Place& place);
// Parses the number of slots `digits`. `word` is the text in the file that contains this number,
// for messages.
Result<int> ParseSlotCount(std::string_view digits, std::string_view word, const Place& place);

// Collects the hosts of a file in their order and rejects duplicates.
class HostList {
 public:
  // Adds a host. Fails if an earlier host has the same SSH server or the same name.
  Result<void> Add(Host host, const Place& place);
  // Removes and returns all hosts. Fails if there are none. Call this once.
  Result<std::vector<Host>> Take(const std::string& path, const std::string& hint);

 private:
  std::vector<Host> hosts_;
  std::unordered_map<std::string, int> line_of_server_;
  std::unordered_map<std::string, int> line_of_name_;
};

}  // namespace dslaunch
