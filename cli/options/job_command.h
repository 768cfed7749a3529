// The command line of what is done with jobs that were started before:
//   dslaunch ps | describe | logs | attach | stop | report
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/options/options.h"

namespace dslaunch {

struct JobCommand {
  enum class Kind { kHelp, kPs, kDescribe, kLogs, kAttach, kStop, kReport };
  Kind kind = Kind::kHelp;
  std::string text;                      // for kHelp: what to print on stdout
  std::string job;                       // a part of an id, or "last"; not for kPs
  std::vector<std::string> ssh_command;  // in place of the job's; empty: the job's

  // ps
  bool all = false;  // those that have ended too
  bool json = false;
  bool prune = false;
  int64_t older_than_ms = 0;  // for prune: since the end

  // logs, attach
  ShownRanks shown_ranks;
  bool follow = false;
  int64_t since_unix_ms = 0;  // 0: from the beginning

  bool now = false;  // stop: SIGKILL without grace

  // report
  std::string output;  // empty: JOB.html
  bool force = false;  // overwrite it
};

// Whether the first word of a command line is one of these commands. A program of that name is
// started as ./ps.
bool IsJobCommand(std::string_view word);

// `words` begins with the command. Errors are kUsage, one line with a hint.
Result<JobCommand> ParseJobCommand(const std::vector<std::string>& words, int64_t now_unix_ms);

// "90s", "10m", "2h", "3d" before now, or "2026-11-21[T10:00[:05][Z]]", local time without the Z.
// The error says these forms.
Result<int64_t> ParseSince(const std::string& text, int64_t now_unix_ms);

}  // namespace dslaunch
