// Finds hosts for which ssh_config gives the same configuration.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// The conditions of an ssh_config. Pure. Conservative: hosts in one class have the same
// configuration except for their own name, but hosts in different classes may have too.
class SshConfigRules {
 public:
  // `texts` are all files that ssh reads, in any order.
  explicit SshConfigRules(const std::vector<std::string>& texts);

  // Returns the class of a host, valid among hosts with the same user, port and options. Returns
  // nullopt if the host shares with none, because a `HostName` or `Include` may be specific to it,
  // a `Match` tests more than names, or the name is not plain (lower case).
  std::optional<std::string> ClassOf(std::string_view host) const;

 private:
  // A `Host`, or one condition of a `Match`.
  struct Condition {
    std::vector<std::string> patterns;
    std::vector<std::string> excluded;  // patterns with "!"
    bool names_host = false;            // a `HostName` other than %h depends on it

    void Add(std::string_view pattern);
    bool Holds(std::string_view host) const;
  };

  void Read(std::string_view text);
  void AddHost(std::string_view patterns);
  void AddMatch(std::string_view criteria);

  bool may_share_ = true;
  std::vector<Condition> conditions_;
};

// Returns the files that `ssh -v` reported as read.
std::vector<std::string> FilesThatSshReads(std::string_view verbose);

// Returns the output of `ssh -G` for `host`, derived from `dump`, the output for `other` of the
// same class. Returns nullopt if it may differ, because `dump` names one of the two hosts in other
// places (a host in ProxyJump does not jump to itself).
std::optional<std::string> DumpFor(std::string_view other, std::string_view dump,
                                   std::string_view host);

}  // namespace dslaunch
