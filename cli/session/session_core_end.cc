// How a session ends: in bounded time, whatever the nodes do, and with a full report. Or how it
// detaches from its job.
#include <utility>

#include "base/count.h"
#include "cli/session/connect_failures.h"
#include "cli/session/session_core.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kSilentNodeWait(
    2'000);  // for a supervisor that has just noticed a stopped agent
// A reader that takes nothing for so long is not waited for any more.
constexpr std::chrono::seconds kReaderPatience(60);
constexpr std::chrono::seconds kReaderPatienceAtTheEnd(2);  // that the user wants

}  // namespace

// The ready barrier has passed, so there is a job to leave. Nodes that are not there have no part
// in it.
void SessionCore::DetachAll() {
  if (std::exchange(detaching_, true)) return;
  StopConnecting();
  pending_ = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_seen()) continue;
    ++pending_;
    Do(action::Detach{i});
  }
}

// One node that cannot be left ends the job: half of it would need this front end.
SessionCore::Actions SessionCore::OnDetached(const Result<void>& result, Clock::time_point now) {
  if (finished_) return {};
  --pending_;
  if (!result.ok() && std::exchange(detaching_, false)) {
    Log(LogLevel::kError, result.error().message + "; the job is stopped");
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].is_seen()) continue;
      StopNode(i, MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(i), ExitCode::kUnavailable,
                            result.error().message));
    }
    ArmTeardownTimer(now);
  } else if (pending_ == 0 && detaching_) {
    detached_ = true;
    Finish();
  }
  return Take();
}

// Once the end has begun it has a bound, whatever the nodes do.
void SessionCore::ArmTeardownTimer(Clock::time_point now) {
  if (std::exchange(teardown_armed_, true)) return;
  teardown_is_brief_ = false;
  Do(action::SetTimer{SessionTimer::kTeardown, now + teardown_limit() + dead_after()});
}

SessionCore::Actions SessionCore::OnTeardownTimer(std::optional<Clock::duration> reader_still_for,
                                                  Clock::time_point now) {
  if (finished_) return {};
  if (!reader_still_for || teardown_is_brief_ || output_is_dropped_) {
    GiveUpWaiting();
  } else if (*reader_still_for < kReaderPatience) {
    // A node that waits for our own terminal is not late.
    teardown_armed_ = false;
    ArmTeardownTimer(now);
  } else {
    // What it reported may be there behind its output.
    DropOutput();
    Do(action::SetTimer{SessionTimer::kTeardown, now + dead_after()});
  }
  return Take();
}

// Who has asked for the end does not want to wait for a reader.
SessionCore::Actions SessionCore::OnReader(std::optional<Clock::duration> still_for) {
  if (finished_ || !was_interrupted_ || !still_for || *still_for < kReaderPatienceAtTheEnd)
    return {};
  DropOutput();
  return Take();
}

void SessionCore::DropOutput() {
  if (std::exchange(output_is_dropped_, true)) return;
  Log(LogLevel::kWarning,
      "nobody reads this output; what the ranks still write is in their log files only");
  Do(action::DropOutput{});
}

void SessionCore::GiveUpWaiting() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    NodeState& node = nodes_[i];
    if (!node.is_seen()) continue;
    if (job_state_.node(i).lost_reason.empty()) {
      job_state_.OnLost(i,
                        "it did not confirm its teardown in time; look for processes of job " +
                            options_.job.job_id() + " there",
                        "");
    }
    Record(action::Record::Kind::kLost, i, LostMessage(job_state_.node(i)));
    node.given_up = true;
    Abort(i, "it did not end in time");
  }
  Finish();
}

EndView SessionCore::EndViewOf(size_t index) const {
  return {.ended = nodes_[index].ended,
          .stream_ended = nodes_[index].stream_ended,
          .given_up = job_state_.IsGivenUp(index),
          .is_part = job_state_.IsPart(index)};
}

void SessionCore::EndIfAllEnded(Clock::time_point now) {
  // Each node's end leads here: mostly the node that was needed before still is.
  for (size_t looked_at = 0; looked_at < nodes_.size(); ++looked_at) {
    if (IsNeeded(EndViewOf(needed_))) return;
    needed_ = (needed_ + 1) % nodes_.size();
  }
  std::vector<EndView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) views.push_back(EndViewOf(i));
  const EndDecision decision = DecideEnd(views);
  if (decision == EndDecision::kEnd) return Finish();
  if (decision == EndDecision::kWait) return;
  teardown_is_brief_ = true;
  Do(action::SetTimer{SessionTimer::kTeardown, now + kSilentNodeWait});
}

void SessionCore::Finish() {
  if (!std::exchange(finished_, true)) Do(action::Finish{});
}

SessionEnd SessionCore::End() const {
  if (detached_) return {.kind = SessionEnd::Kind::kDetached};
  if (failed_to_start_) return StartFailure();
  JobInfo info = job_state_.Info();
  info.cancelled = cancelled_;
  if (running_) return {.kind = SessionEnd::Kind::kEnded, .job = DecideJobEnd(info)};
  SessionEnd end{.kind = SessionEnd::Kind::kInterrupted};
  end.job.cause = *info.interrupted;
  end.lines = {end.job.cause.message() + " before anything was started"};
  end.job.exit_code = end.job.cause.exit_code();
  return end;
}

SessionEnd SessionCore::StartFailure() const {
  SessionEnd end{.kind = SessionEnd::Kind::kNotStarted};
  std::vector<NodeFailure> failures;
  std::vector<std::string> unknown;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::optional<Error>& failure = nodes_[i].failure;
    if (giving_up_ && !failure && !nodes_[i].is_reached) unknown.push_back(NameOf(i));
    if (!failure) continue;
    if (failures.empty()) {
      end.job.cause = MakeCause(pb::Cause::START_FAILED, static_cast<uint32_t>(i), failure->code,
                                failure->message);
    }
    failures.push_back({NameOf(i), nodes_[i].planned->host, failure->message});
  }
  end.lines = FoldFailures(failures);
  if (!unknown.empty()) {
    end.lines.push_back("no answer so far from: " + NameList(unknown, ", ") + " (" +
                        Count(unknown.size(), "node") + ")");
  }
  if (nodes_.size() > 1) {
    end.lines.push_back("nothing was started (" + std::to_string(failures.size()) + " of " +
                        Count(nodes_.size(), "node") + " failed)");
  }
  end.job.exit_code = FailureCode(end.job.cause.exit_code(), ExitCode::kInternal);
  return end;
}

}  // namespace dslaunch
