#include "cli/options/job_command.h"

#include <cctype>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

#include "base/text/sanitize.h"
#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"
#include "cli/options/option_values.h"

namespace dslaunch {
namespace {

constexpr double kMostAgoS = 1e9;

std::optional<int64_t> ParseTime(const std::string& text) {
  for (const char* form :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    time.tm_isdst = -1;
    const char* const rest = ::strptime(text.c_str(), form, &time);
    if (rest == nullptr) continue;
    if (std::string_view(rest) == "Z") return int64_t{::timegm(&time)} * 1000;
    if (*rest == '\0') return int64_t{::mktime(&time)} * 1000;
  }
  return std::nullopt;
}

}  // namespace

bool IsJobCommand(std::string_view word) {
  return word == "ps" || word == "describe" || word == "logs" || word == "attach" ||
         word == "stacks" || word == "top" || word == "stop" || word == "report";
}

Result<int64_t> ParseSince(const std::string& text, int64_t now_unix_ms) {
  const std::optional<double> ago = text.empty() ? std::nullopt : ParseDuration(text);
  const bool has_unit = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back())) != 0;
  if (ago && has_unit && *ago >= 0 && *ago < kMostAgoS)
    return now_unix_ms - std::llround(*ago * 1000);
  if (const std::optional<int64_t> time = ParseTime(text)) return *time;
  return Error{ExitCode::kUsage,
               "--since must be a time as 10m, 2h or 2026-11-21T10:00, not " + Quoted(text)};
}

Result<JobCommand> ParseJobCommand(const std::vector<std::string>& words, int64_t now_unix_ms) {
  const std::string& name = words.front();
  ParsedFlags flags;
  flags.now_unix_ms = now_unix_ms;
  flags.job.kind = name == "ps"         ? JobCommand::Kind::kPs
                   : name == "describe" ? JobCommand::Kind::kDescribe
                   : name == "logs"     ? JobCommand::Kind::kLogs
                   : name == "attach"   ? JobCommand::Kind::kAttach
                   : name == "stacks"   ? JobCommand::Kind::kStacks
                   : name == "top"      ? JobCommand::Kind::kTop
                   : name == "stop"     ? JobCommand::Kind::kStop
                                        : JobCommand::Kind::kReport;
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand(name, words));
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> parsed,
                 ParseCommand(*command, words, 1, std::move(flags)));
  if (parsed) return std::move(parsed->job);
  JobCommand help;
  help.text = CommandHelpText(name);
  return help;
}

}  // namespace dslaunch
