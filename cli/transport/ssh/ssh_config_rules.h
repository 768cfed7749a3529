// Finds hosts for which ssh_config gives the same configuration, so that ssh is run once for them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Divides hosts into classes by the conditions of an ssh_config. Hosts in one class have the same
// configuration except for their own name. Hosts in different classes may have the same
// configuration too, because the division is conservative. Performs no I/O.
class SshConfigRules {
 public:
  // Reads the rules in `texts`, the contents of all files that ssh reads, in any order.
  explicit SshConfigRules(const std::vector<std::string>& texts);

  // Returns the class of a host, valid among hosts with the same user, port and options. Returns
  // nullopt if the host may share its configuration with no other host. This is so if a `HostName`
  // or `Include` may be specific to the host, a `Match` tests more than names, or the name is not
  // plain (lower case).
  std::optional<std::string> ClassOf(std::string_view host) const;

 private:
  // The condition of a `Host` line, or one condition of a `Match` line.
  struct Condition {
    std::vector<std::string> patterns;
    std::vector<std::string> excluded;  // patterns with a leading "!", stored without the "!"
    bool names_host = false;  // true if a `HostName` other than %h depends on this condition

    void Add(std::string_view pattern);
    bool Holds(std::string_view host) const;
  };

  void Read(std::string_view text);
  void AddHost(std::string_view patterns);
  void AddMatch(std::string_view criteria);

  bool may_share_ = true;
  std::vector<Condition> conditions_;
};

// Returns the files that ssh read according to `verbose`, the stderr of `ssh -v`.
std::vector<std::string> FilesThatSshReads(std::string_view verbose);

// Returns the output of `ssh -G` for `other`, derived from `dump`, the output for `host`, a host of
// the same class. Returns nullopt if the output for `other` may differ: `dump` contains one of the
// two names in other places, for example in ProxyJump, because a host does not jump to itself.
std::optional<std::string> DumpFor(std::string_view other, std::string_view dump,
                                   std::string_view host);

}  // namespace dslaunch
