// How a session ends at its edge: the links are closed, and everything is said.
#include <string_view>

#include "cli/session/job_summary.h"
#include "cli/session/session.h"
#include "cli/session/summary_json.h"

namespace dslaunch {
namespace {

constexpr milliseconds kGoodbyeWait(5'000);  // for supervisors that have nothing left to do

// For who has not seen the rest.
std::string FinalStatusLine(const JobSummary& summary) {
  const bool is_failure = summary.exit_code != 0 && !summary.saved_on_request;
  const std::string text = is_failure ? FirstCauseText(summary) : SummaryText(summary);
  const std::string line = text.substr(0, text.find('\n'));
  constexpr std::string_view kPrefix = "dslaunch: ";
  return line.starts_with(kPrefix) ? line.substr(kPrefix.size()) : line;
}

}  // namespace

// Returns how the launcher's system ended the job, in its words; empty: it did not.
std::string LaunchSession::Cancellation() const {
  const StartAll* const start = RowOf(options_.plan.launcher).start_all;
  if (start == nullptr || start->read_cancellation == nullptr) return "";
  for (const auto& client : clients_) {
    const std::string how = client ? start->read_cancellation(client->LastOutput()) : "";
    if (!how.empty()) return how;
  }
  return "";
}

int LaunchSession::Conclude() {
  const SessionEnd::Kind kind = core_.End().kind;
  if (kind == SessionEnd::Kind::kDetached) return ReportDetached();
  if (kind != SessionEnd::Kind::kNotStarted) output_.FinishStreams();
  CloseLinks();
  core_.OnCancelled(Cancellation());  // after the launcher's end, so its output is complete
  const SessionEnd end = core_.End();
  for (const std::string& line : end.lines) Log(LogLevel::kError, line);
  Report(end.job, /*show=*/end.kind == SessionEnd::Kind::kEnded);
  return end.job.exit_code;
}

// End of file is the goodbye: supervisors with nothing left to do end at once.
void LaunchSession::CloseLinks() {
  for (const auto& client : clients_) {
    if (client) client->SayGoodbye();
  }
  const Deadline deadline = Deadline::After(kGoodbyeWait);
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (clients_[i] && !core_.HasGivenUp(i)) clients_[i]->WaitEnd(deadline);
  }
}

int LaunchSession::ReportDetached() {
  detached_ = true;
  for (const auto& client : clients_) {
    if (!client) continue;
    client->LeaveRunning();
    client->SayGoodbye();
  }
  const std::string& id = options_.job.job_id();
  output_.Print(id);
  Log(LogLevel::kInfo,
      "detached; dslaunch ps | logs -f " + id + " | attach " + id + " | stop " + id);
  return ToInt(ExitCode::kOk);
}

void LaunchSession::Report(const JobEnd& end, bool show) {
  std::vector<std::string> job_dirs;
  for (size_t i = 0; i < clients_.size(); ++i) job_dirs.push_back(core_.JobFolderOf(i));
  JobSummary summary = SummarizeJob(options_.job.job_id(), options_.plan, core_.job_state(), end,
                                    job_dirs, Clock::now() - started_at_);
  summary.hint = StdinHint(summary.cause, options_.job.rank_stdin().from_front_end());
  const std::string json = SummaryJson(summary);
  events_.Ended(json);
  final_status_ = FinalStatusLine(summary);
  // Of a job that succeeded there is to say how long it took, unless something went wrong all the
  // same.
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
