// Which hosts ssh_config says the same about.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// What ssh_config's conditions look at. Pure. Careful: hosts that it puts into one class have the
// same configuration but for their own name; others may have, too.
class SshConfigRules {
 public:
  // `texts`: all files that ssh reads, in any order.
  explicit SshConfigRules(const std::vector<std::string>& texts);

  // The class of a host that is asked for with the same user, port and options as others. nullopt:
  // it shares with none, because a `HostName` or `Include` may be its own, a `Match` asks more than
  // names tell, or the name is not plain (lower case).
  std::optional<std::string> ClassOf(std::string_view host) const;

 private:
  // A `Host`, or one of the conditions of a `Match`.
  struct Condition {
    std::vector<std::string> patterns;
    std::vector<std::string> excluded;  // those with "!"
    bool names_host = false;            // a `HostName` besides %h depends on it

    void Add(std::string_view pattern);
    bool Holds(std::string_view host) const;
  };

  void Read(std::string_view text);
  void AddHost(std::string_view patterns);
  void AddMatch(std::string_view criteria);

  bool may_share_ = true;
  std::vector<Condition> conditions_;
};

// The files that `ssh -v` said it reads.
std::vector<std::string> FilesThatSshReads(std::string_view verbose);

// What `ssh -G` printed for `host`, as it prints it for `other` of the same class. nullopt: it may
// say something else, because it names one of the two besides its own name (a host that ProxyJump
// names does not jump to itself).
std::optional<std::string> DumpFor(std::string_view other, std::string_view dump,
                                   std::string_view host);

}  // namespace dslaunch
