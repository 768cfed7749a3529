#include "cli/options/job_command.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <ctime>
#include <functional>

#include "cli/options/command_words.h"
#include "cli/options/option_values.h"

namespace dslaunch {
namespace {

constexpr char kHelp[] =
    R"(dslaunch ps [--all] [--json] [--prune [--older_than DAYS]]
    this user's jobs that were started from this machine and run; --all: those that have ended
    too; --prune removes the folders of those that have ended, here and on their nodes

dslaunch logs JOB [-f] [--rank R | --tee all|0,3] [--since 10m|TIME]
    what ranks wrote, of rank 0 by default; -f: until the job ends. TIME is as 2026-11-21T10:00,
    local time, or with Z

dslaunch attach JOB [--rank R | --tee all|none|0,3]
    shows a detached job from now on and ends with its exit code; Ctrl-C leaves it running

dslaunch stop JOB [--now]
    SIGTERM, and SIGKILL after the job's grace, or at once with --now; waits until nothing is left

dslaunch report JOB [-o FILE.html] [--force]
    one page about a training run, JOB.html without -o: loss, learning rate, step time by rank,
    operators, communication, memory; of a job that runs too. A browser shows it without network

JOB is a job id, the beginning of only one, or 'last'.
)";

Error Usage(const std::string& command, const std::string& what) {
  return {ExitCode::kUsage, command + ": " + what + (what.back() == '?' ? " See" : "; see") +
                                " dslaunch " + command + " --help"};
}

std::optional<int64_t> ParseAgo(const std::string& text) {
  double amount = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, status] = std::from_chars(text.data(), end, amount);
  if (status != std::errc() || unit + 1 != end || !(amount >= 0 && amount < 1e6))
    return std::nullopt;
  const double seconds = *unit == 's'   ? 1
                         : *unit == 'm' ? 60
                         : *unit == 'h' ? 3600
                         : *unit == 'd' ? 86400
                                        : 0;
  if (seconds == 0) return std::nullopt;
  return std::llround(amount * seconds * 1000);
}

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
  return word == "ps" || word == "logs" || word == "attach" || word == "stop" || word == "report";
}

Result<int64_t> ParseSince(const std::string& text, int64_t now_unix_ms) {
  if (const std::optional<int64_t> ago = ParseAgo(text)) return now_unix_ms - *ago;
  if (const std::optional<int64_t> time = ParseTime(text)) return *time;
  return Error{ExitCode::kUsage,
               "--since must be a time as 10m, 2h or 2026-11-21T10:00, not " + Quoted(text)};
}

Result<JobCommand> ParseJobCommand(const std::vector<std::string>& words, int64_t now_unix_ms) {
  const std::string& name = words.front();
  JobCommand command;
  command.kind = name == "ps"       ? JobCommand::Kind::kPs
                 : name == "logs"   ? JobCommand::Kind::kLogs
                 : name == "attach" ? JobCommand::Kind::kAttach
                 : name == "stop"   ? JobCommand::Kind::kStop
                                    : JobCommand::Kind::kReport;
  CLI::App app;
  bool help = false;
  std::optional<std::string> rank, tee, since, older_than;
  app.set_help_flag();
  app.add_flag("-h,--help", help);
  if (command.kind == JobCommand::Kind::kPs) {
    app.add_flag("--all", command.all);
    app.add_flag("--json", command.json);
    CLI::Option* prune = app.add_flag("--prune", command.prune);
    app.add_option("--older_than", older_than)->needs(prune);
  } else {
    app.add_option("JOB", command.job);
  }
  if (command.kind == JobCommand::Kind::kLogs || command.kind == JobCommand::Kind::kAttach) {
    CLI::Option* one = app.add_option("--rank", rank);
    app.add_option("--tee", tee)->excludes(one);
  }
  if (command.kind == JobCommand::Kind::kLogs) {
    app.add_flag("-f,--follow", command.follow);
    app.add_option("--since", since);
  }
  if (command.kind == JobCommand::Kind::kStop) app.add_flag("--now", command.now);
  CLI::Option* output = nullptr;
  if (command.kind == JobCommand::Kind::kReport) {
    output = app.add_option("-o,--output", command.output);
    app.add_flag("--force", command.force);
  }

  std::vector<std::string> rest;
  for (size_t i = words.size(); i > 1; --i) rest.push_back(WithUnderscores(words[i - 1]));
  try {
    app.parse(std::move(rest));  // in reverse, as CLI11 wants them
    if (rank) command.tee = {false, {ReadWhole<int>("--rank", *rank, 0, kMaxNodes)}};
    if (tee) command.tee = ReadTee(*tee);
    if (older_than) {
      command.older_than_ms =
          int64_t{ReadWhole<int>("--older_than", *older_than, 0, 36'500)} * 86'400'000;
    }
  } catch (const CLI::ExtrasError&) {
    return Usage(name, DescribeExtra(app));
  } catch (const CLI::Error& error) {
    return Usage(name, error.what());
  }
  if (help) {
    command.kind = JobCommand::Kind::kHelp;
    command.text = kHelp;
    return command;
  }
  if (since) {
    DSL_TRY_ASSIGN(command.since_unix_ms, ParseSince(*since, now_unix_ms));
  }
  if (command.kind != JobCommand::Kind::kPs && command.job.empty())
    return Usage(name, "which job? Give its id, the beginning of it, or 'last'");
  if (output != nullptr && output->count() > 0 && command.output.empty())
    return Usage(name, "--output is empty");
  return command;
}

}  // namespace dslaunch
