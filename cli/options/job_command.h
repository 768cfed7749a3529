// The command line of commands for existing jobs: dslaunch ps | describe | logs | attach | stacks |
// top | stop | report
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
  std::string text;                      // text to print on stdout, for kHelp
  std::string job;                       // part of a job id, or "last"; empty for kPs
  std::vector<std::string> ssh_command;  // replaces the ssh command of the job; empty keeps it

  // Options of `ps`:
  bool all = false;          // includes jobs that have ended
  bool json = false;         // also an option of `stacks` and `top`
  bool openmetrics = false;  // metrics of running jobs, or of `job`
  bool prune = false;
  int64_t older_than_ms = 0;  // minimum time since the end of a job, for prune

  // Options of `logs` and `attach`:
  ShownRanks shown_ranks;
  bool follow = false;
  int64_t since_unix_ms = 0;  // Unix time; 0 for the whole output

  std::optional<int> only_rank;  // rank of `stacks`; nullopt: all

  bool once = false;  // top prints once instead of drawing

  bool now = false;  // stop sends SIGKILL without a grace period

  // Options of `report`:
  std::string output;   // output file; empty for JOB.html
  bool force = false;   // overwrites the output file if it exists
  std::string compare;  // another job, to compare `job` with; empty: none
};

// Returns whether `word`, the first of a command line, is one of these commands. A program of the
// same name must be started as ./NAME.
bool IsJobCommand(std::string_view word);

// Parses the command line; `words` begins with the command. `now_unix_ms` resolves times such as
// "10m". Errors are kUsage, one line with a hint.
Result<JobCommand> ParseJobCommand(const std::vector<std::string>& words, int64_t now_unix_ms);

// Returns a Unix time in milliseconds. `text` is an age before `now_unix_ms` ("90s", "10m", "2h",
// "3d") or a time "2026-11-21[T10:00[:05][Z]]", local without the Z. The error lists these forms.
Result<int64_t> ParseSince(const std::string& text, int64_t now_unix_ms);

}  // namespace dslaunch
