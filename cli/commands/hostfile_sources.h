// Where `dslaunch hostfile write` finds the names of nodes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {

inline constexpr size_t kMaxListedNodes = 100'000;  // of one list; more is a mistake

// Hosts of "[USER@]NAME[:PORT]" each, without slots. `source` is the option that gave the names and
// begins each error, which is kUsage. One that is named twice counts once.
Result<std::vector<Host>> HostsFromNames(const std::vector<std::string>& names,
                                         const std::string& source);

// SLURM's list of nodes, in its order: "login,gpu[001-003,007]-ib[0-1]". Pure. The error is a
// fragment: what is wrong with the list.
Result<std::vector<std::string>> ExpandNodeList(std::string_view list);

// The nodes of the allocation that this process runs in. `getenv` as the C function. kUsage.
using GetVariable = const char* (*)(const char*);
Result<std::vector<std::string>> SlurmNodes(GetVariable getenv);

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
