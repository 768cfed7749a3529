#include "agent/probe/health_command.h"

#include <string>
#include <utility>
#include <vector>

#include "agent/host/program.h"
#include "base/count.h"
#include "base/deadline.h"
#include "base/errno_text.h"
#include "base/os/brief_run.h"
#include "base/text/sanitize.h"
#include "base/text/signal_name.h"
#include "base/text/split_lines.h"

namespace dslaunch {
namespace {

// Returns the last line that is not empty; empty if there is no such line.
std::string LastLine(std::string_view output) {
  while (output.ends_with('\n')) output.remove_suffix(1);
  return SanitizeForTerminal(output.substr(output.rfind('\n') + 1));
}

std::string Failure(const BriefRun& run, uint32_t timeout_ms) {
  switch (run.end) {
    case BriefRun::End::kNotStarted:
      return "it did not start: " + ErrnoText(run.number);
    case BriefRun::End::kTimedOut:
      return "it did not end within " + Seconds(timeout_ms);
    case BriefRun::End::kSignalled:
      return "it was ended by " + SignalName(run.number);
    case BriefRun::End::kExited:
      break;
  }
  return run.number == 0 ? "" : "it ended with exit code " + std::to_string(run.number);
}

}  // namespace

pb::HealthResult RunHealthCommand(const pb::HealthCommand& command) {
  pb::HealthResult result;
  std::vector<std::string> argv(command.argv().begin(), command.argv().end());
  if (argv.empty()) {
    result.set_failure("the command is empty");
    return result;
  }
  Result<std::string> found = FindExecutable(argv.front(), NodeEnvironment(), "/", "");
  if (!found.ok()) {
    std::string why = found.error().message;
    if (why.starts_with(": ")) why.erase(0, 2);
    result.set_failure(std::move(why));
    return result;
  }
  argv.front() = *std::move(found);
  const Clock::time_point begin = Clock::now();
  const BriefRun run =
      RunBriefly(argv, NodeEnvironment(), Deadline::After(milliseconds(command.timeout_ms())));
  result.set_took_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count()));
  std::string failure = Failure(run, command.timeout_ms());
  const std::string said = LastLine(run.output);
  if (!failure.empty() && !said.empty()) failure += ": " + said;
  result.set_passed(failure.empty());
  result.set_failure(std::move(failure));
  return result;
}

}  // namespace dslaunch
