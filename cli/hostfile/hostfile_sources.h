// Finds the names of nodes for `dslaunch hostfile write`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/plan/slurm_allocation.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

// Parses names of the form "[USER@]NAME[:PORT]" into hosts without slots. Drops duplicates. Errors
// are kUsage and begin with `source`, the option that gave the names.
Result<std::vector<Host>> HostsFromNames(const std::vector<std::string>& names,
                                         const std::string& source);

// Returns the nodes of the Slurm allocation in which this process runs. Errors are kUsage.
Result<std::vector<std::string>> SlurmNodes(const GetVariable& getenv);

// A name in an ssh_config: a host of a `Host` line that is not a pattern, or a file of an `Include`
// line (`is_include`).
struct SshConfigName {
  bool is_include = false;
  std::string name;

  bool operator==(const SshConfigName&) const = default;
};

// Returns the names in the text of an ssh_config, in their order. Pure.
std::vector<SshConfigName> ParseSshConfigNames(std::string_view text);

// Returns the hosts in ~/.ssh/config and the files that it includes, without duplicates. Errors are
// kUsage or kBadInput.
Result<std::vector<std::string>> SshConfigHosts(const std::string& home);

}  // namespace dslaunch
