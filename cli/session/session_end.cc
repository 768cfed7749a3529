// Implements the end of a session: closes the links and reports the result.
#include <string_view>

#include "cli/session/session.h"
#include "cli/session/summary_json.h"

namespace dslaunch {
namespace {

// Returns a line that describes the end to readers who have not seen the other lines.
std::string FinalStatusLine(const JobSummary& summary) {
  const bool is_failure = summary.exit_code != 0 && !summary.saved_on_request;
  const std::string text = is_failure ? FirstCauseText(summary) : SummaryText(summary);
  const std::string line = text.substr(0, text.find('\n'));
  constexpr std::string_view kPrefix = "dslaunch: ";
  return line.starts_with(kPrefix) ? line.substr(kPrefix.size()) : line;
}

}  // namespace

int LaunchSession::Conclude() {
  const SessionEnd::Kind kind = core_.End().kind;
  if (kind == SessionEnd::Kind::kDetached) return ReportDetached();
  if (kind != SessionEnd::Kind::kNotStarted) output_.FinishStreams();
  links_.Close();
  const SessionEnd end = core_.End(links_.Cancellation());
  for (const std::string& line : end.lines) Log(LogLevel::kError, line);
  Report(end.job, /*show=*/end.kind == SessionEnd::Kind::kEnded);
  return end.job.exit_code;
}

int LaunchSession::ReportDetached() {
  detached_ = true;
  links_.LeaveRunning();
  const std::string& id = options_.job.job_id();
  output_.Print(id);
  Log(LogLevel::kInfo,
      "detached; dslaunch ps | logs -f " + id + " | attach " + id + " | stop " + id);
  return ToInt(ExitCode::kOk);
}

void LaunchSession::Report(const JobEnd& end, bool show) {
  const Clock::time_point now = Clock::now();
  std::vector<std::string> job_dirs;
  for (const SessionNodes::Node& node : core_.nodes().all())
    job_dirs.push_back(node.info ? node.info->job_dir() : "");
  JobSummary summary = SummarizeJob(options_.job.job_id(), options_.plan, core_.job_state(), end,
                                    job_dirs, now - started_at_);
  if (core_.job_state().attempt() > 0) summary.goodput = core_.goodput().At(now);
  summary.result = evaluation_.result();
  summary.hint = StdinHint(summary.cause, options_.job.rank_stdin().from_front_end());
  const std::string json = SummaryJson(summary);
  events_.Ended(json);
  final_status_ = FinalStatusLine(summary);
  // The duration of a successful job is reported at the level kInfo, unless a problem must be
  // reported too.
  const bool has_trouble = !summary.left.empty() || !summary.remarks.empty();
  const bool is_failure = summary.exit_code != 0 && !summary.saved_on_request;
  const LogLevel level = is_failure    ? LogLevel::kError
                         : has_trouble ? LogLevel::kWarning
                                       : LogLevel::kInfo;
  if (is_failure) {
    const Result<void> written = WriteErrorFile(options_.error_file, summary);
    if (!written.ok()) Log(LogLevel::kWarning, written.error().message);
  }
  log_.Write(level, SummaryText(summary));
  summary.cause.was_shown = output_.HasShown(summary.cause);
  const std::string text = SummaryText(summary);
  if (show && ShouldPrint(level)) output_.PrintMessage(text);
  if (options_.json) output_.Print(json);
}

}  // namespace dslaunch
