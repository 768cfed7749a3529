// Parses the command lines of commands for existing jobs: dslaunch ps | describe | logs | attach |
// stacks | top | stop | report
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/options/options.h"

namespace dslaunch {

struct JobCommand {
  enum class Kind { kHelp, kPs, kDescribe, kLogs, kAttach, kStacks, kTop, kStop, kReport };
  Kind kind = Kind::kHelp;
  std::string text;  // text to print on stdout, for kHelp
  std::string job;   // part of a job id, or "last"; may be empty for kPs
  // Replaces the ssh command of the job; empty to keep the job's command.
  std::vector<std::string> ssh_command;

  // Options of the command `ps`.
  bool all = false;   // true to include jobs that have ended
  bool json = false;  // whether to print JSON; also an option of `stacks` and `top`
  // Whether to print metrics of `job`, or of all running jobs if `job` is empty.
  bool openmetrics = false;
  bool prune = false;
  int64_t older_than_ms = 0;  // minimum time since the end of a job that --prune removes

  // Options of the commands `logs` and `attach`.
  ShownRanks shown_ranks;
  bool follow = false;
  int64_t since_unix_ms = 0;  // Unix time from which output is shown; 0 for the whole output

  std::optional<int> only_rank;  // only rank that `stacks` shows; nullopt for all ranks

  bool once = false;  // whether `top` prints once instead of drawing continuously

  bool now = false;  // whether `stop` sends SIGKILL without a grace period

  // Options of the command `report`.
  std::string output;   // output file; empty for JOB.html
  bool force = false;   // true to overwrite the output file if it exists
  std::string compare;  // job to compare `job` with; empty for none
};

// Returns whether `word`, the first word of a command line, is one of these commands. A program
// with such a name must be started as ./NAME.
bool IsJobCommand(std::string_view word);

// Parses the command line; `words` begins with the command. `now_unix_ms` is the current Unix time,
// relative to which ages such as "10m" are resolved. Errors are kUsage, one line with a hint.
Result<JobCommand> ParseJobCommand(const std::vector<std::string>& words, int64_t now_unix_ms);

// Returns a Unix time in milliseconds. `text` is an age before `now_unix_ms` ("90s", "10m", "2h",
// "3d"), or a time "2026-11-21[T10:00[:05][Z]]", which is local without the Z. The error lists
// these forms.
Result<int64_t> ParseSince(const std::string& text, int64_t now_unix_ms);

}  // namespace dslaunch
