// Parses the command line of `dslaunch hostfile write | check`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/option_table.h"

namespace dslaunch {

struct HostfileCommand {
  enum class Kind { kHelp, kWrite, kCheck };
  enum class Source { kHosts, kSlurm, kSshConfig };
  Kind kind = Kind::kHelp;
  std::string text;  // text to print on stdout, for kHelp
  int64_t connect_timeout_ms = 20'000;
  // The system's ssh command with its options; empty for the built-in client.
  std::vector<std::string> ssh_command;

  // Options of the command `hostfile write`.
  Source source = Source::kHosts;
  std::vector<std::string> hosts;  // values of --hosts as typed by the user
  std::string output;              // output file; empty for stdout
  bool force = false;              // true to overwrite `output` if it exists
  bool skip_failing = false;       // true to omit nodes that cannot be reached

  // Options of the command `hostfile check`.
  std::string file;
  bool json = false;
};

const OptionTable& HostfileWriteOptions();
const OptionTable& HostfileCheckOptions();

// Parses the command line, whose first word in `words` is "hostfile". Errors are kUsage, one line
// with a hint.
Result<HostfileCommand> ParseHostfileCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
