// How a session ends: bounded, whatever the nodes do, and with everything said.
#include <algorithm>
#include <string_view>

#include "base/count.h"
#include "cli/session/connect_failures.h"
#include "cli/session/end_decision.h"
#include "cli/session/job_summary.h"
#include "cli/session/session.h"
#include "cli/session/summary_json.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kTeardownSlack(5'000);  // beyond what the nodes allow themselves
constexpr milliseconds kGoodbyeWait(5'000);    // for keepers that have nothing left to do
constexpr milliseconds kSilentNodeWait(
    2'000);  // for a keeper that has just noticed a stopped agent

// For who has not seen the rest.
std::string LastWord(const JobSummary& summary) {
  const std::string text = summary.exit_code == 0 ? SummaryText(summary) : FirstCauseText(summary);
  const std::string line = text.substr(0, text.find('\n'));
  constexpr std::string_view kPrefix = "dslaunch: ";
  return line.starts_with(kPrefix) ? line.substr(kPrefix.size()) : line;
}

}  // namespace

// Once the end has begun it has a bound, whatever the nodes do.
void LaunchSession::ArmTeardownTimer() {
  if (std::exchange(teardown_armed_, true)) return;
  teardown_timer_.expires_after(milliseconds(options_.timeouts.grace_ms()) +
                                milliseconds(options_.timeouts.teardown_ms()) + dead_after() +
                                kTeardownSlack);
  teardown_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    teardown_armed_ = false;
    // A node that waits for our own terminal is not late.
    output_.SlowReaderMakesProgress() ? ArmTeardownTimer() : GiveUpWaiting();
  });
}

void LaunchSession::GiveUpWaiting() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    NodeState& node = nodes_[i];
    if (node.ended || !node.client) continue;
    if (story_.node(i).lost_reason.empty()) {
      story_.OnLost(
          i, "it did not say in time that it is empty; look for job " + options_.job_id + " there",
          "");
    }
    events_.Lost(NameOf(i), LostMessage(story_.node(i)));
    node.given_up = true;
    node.client->Abort("it did not end in time");
  }
  loop_.stop();
}

void LaunchSession::EndIfAllEnded() {
  std::vector<EndView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    views.push_back({.ended = nodes_[i].ended,
                     .stream_ended = nodes_[i].stream_ended,
                     .given_up = story_.IsGivenUp(i),
                     .is_part = story_.IsPart(i)});
  }
  const EndDecision decision = DecideEnd(views);
  if (decision == EndDecision::kEnd) return loop_.stop();
  if (decision == EndDecision::kWait) return;
  teardown_timer_.expires_after(kSilentNodeWait);
  teardown_timer_.async_wait([this](const asio::error_code& error) {
    if (!error) GiveUpWaiting();
  });
}

// End of file is the goodbye: keepers with nothing left to do end at once.
void LaunchSession::CloseLinks() {
  for (const NodeState& node : nodes_) {
    if (node.client) node.client->SayGoodbye();
  }
  const Deadline deadline = Deadline::After(kGoodbyeWait);
  for (const NodeState& node : nodes_) {
    if (node.client && !node.given_up) node.client->WaitEnd(deadline);
  }
}

int LaunchSession::ReportStartFailure() {
  CloseLinks();
  JobEnd end;
  std::vector<NodeFailure> failures;
  std::vector<std::string> unknown;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::optional<Error>& failure = nodes_[i].failure;
    if (giving_up_ && !failure && !nodes_[i].is_reached()) unknown.push_back(NameOf(i));
    if (!failure) continue;
    if (failures.empty())
      end.cause = MakeCause(pb::Cause::START_FAILED, static_cast<uint32_t>(i), failure->code,
                            failure->message);
    failures.push_back({NameOf(i), nodes_[i].planned->host, failure->message});
  }
  for (const std::string& line : FoldFailures(failures)) Say(LogLevel::kError, line);
  if (!unknown.empty()) {
    Say(LogLevel::kError, "not known yet, for they had not answered so far: " +
                              NameList(unknown, ", ") + " (" + Count(unknown.size(), "node") + ")");
  }
  if (nodes_.size() > 1) {
    Say(LogLevel::kError, "nothing was started (" + std::to_string(failures.size()) + " of " +
                              Count(nodes_.size(), "node") + " failed)");
  }
  end.exit_code = end.cause.exit_code();
  Report(end, /*show=*/false);
  return end.exit_code;
}

int LaunchSession::ReportEnd() {
  output_.FinishStreams();
  CloseLinks();
  const JobFacts facts = story_.Facts();
  if (!running_) {
    Say(LogLevel::kError, "interrupted before anything was started");
    JobEnd end;
    end.cause = *facts.interrupted;
    end.exit_code = end.cause.exit_code();
    Report(end, /*show=*/false);
    return end.exit_code;
  }
  const JobEnd end = DecideJobEnd(facts);
  Report(end, /*show=*/true);
  return end.exit_code;
}

void LaunchSession::Report(const JobEnd& end, bool show) {
  std::vector<std::string> job_dirs;
  for (const NodeState& node : nodes_) job_dirs.push_back(node.facts ? node.facts->job_dir() : "");
  const JobSummary summary = SummarizeJob(options_.job_id, options_.plan, story_, end, job_dirs,
                                          Clock::now() - started_at_);
  const std::string json = SummaryJson(summary);
  events_.Ended(json);
  last_word_ = LastWord(summary);
  // Of a job that ended well there is to say how long it took, unless something went wrong all the
  // same.
  const bool has_trouble = !summary.left.empty() || !summary.remarks.empty();
  const LogLevel level = summary.exit_code != 0 ? LogLevel::kError
                         : has_trouble          ? LogLevel::kWarning
                                                : LogLevel::kInfo;
  if (show && Says(level)) output_.Say(SummaryText(summary));
  if (options_.json) output_.Print(json);
}

}  // namespace dslaunch
