// The command line of what is done with hostfiles:
//   dslaunch hostfile write | check
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct HostfileCommand {
  enum class Kind { kHelp, kWrite, kCheck };
  enum class Source { kHosts, kSlurm, kSshConfig };
  Kind kind = Kind::kHelp;
  std::string text;  // for kHelp: what to print on stdout
  int64_t connect_timeout_ms = 20'000;
  std::vector<std::string> ssh_command;  // the system's ssh and its options; empty: ours

  // write
  Source source = Source::kHosts;
  std::vector<std::string> hosts;  // of --hosts, as typed
  std::string output;              // empty: stdout
  bool force = false;              // overwrites `output`
  bool skip_failing = false;       // leaves out nodes that cannot be reached

  // check
  std::string file;
  bool json = false;
};

// `words` begins with "hostfile". Errors are kUsage, one line with a hint.
Result<HostfileCommand> ParseHostfileCommand(const std::vector<std::string>& words);

}  // namespace dslaunch
