// Where `dslaunch hostfile write` finds the names of nodes.
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

// Hosts of "[USER@]NAME[:PORT]" each, without slots. `source` is the option that gave the names and
// begins each error, which is kUsage. One that is named twice counts once.
Result<std::vector<Host>> HostsFromNames(const std::vector<std::string>& names,
                                         const std::string& source);

// The nodes of the allocation that this process runs in. kUsage.
Result<std::vector<std::string>> SlurmNodes(const GetVariable& getenv);

// What an ssh_config names: hosts of its `Host` lines that are no patterns, and files of its
// `Include` lines, in order. Pure.
struct SshConfigName {
  bool is_include = false;
  std::string name;

  bool operator==(const SshConfigName&) const = default;
};
std::vector<SshConfigName> ParseSshConfigNames(std::string_view text);

// The hosts of ~/.ssh/config and what it includes, each once. kUsage or kBadInput.
Result<std::vector<std::string>> SshConfigHosts(const std::string& home);

}  // namespace dslaunch
