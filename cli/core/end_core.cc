#include "cli/core/end_core.h"

#include <string>
#include <utility>
#include <vector>

#include "base/text/signal_name.h"
#include "cli/core/call_times.h"
#include "proto/wire/cause.h"

namespace dslaunch {
namespace {

constexpr milliseconds kSameInterrupt(100);
// Limit of the wait for a supervisor that has just detected that its agent has stopped.
constexpr milliseconds kSilentNodeWait(2'000);
// Time after which the session stops waiting for a reader that accepts no output.
constexpr std::chrono::seconds kReaderPatience(60);
// The same patience with a reader that accepts no output, after the user has requested the end.
constexpr std::chrono::seconds kReaderPatienceAtTheEnd(2);

}  // namespace

// --- Requests of the user ---

void EndCore::OnInterrupt(int signal_number, Clock::time_point now) {
  // timeout(1) and some job systems signal both the process and its group, so two signals in quick
  // succession count as one request.
  const std::optional<Clock::time_point> before = std::exchange(interrupted_at_, now);
  if (before && now - *before < kSameInterrupt) return;
  // The job is about to continue without this process, so the signal is ignored.
  if (detaching_) return;
  const bool again = std::exchange(was_interrupted_, true);
  const std::string name = SignalName(signal_number);
  const pb::Cause cause =
      MakeSignalCause(pb::Cause::INTERRUPTED, 0, signal_number, "interrupted by " + name);
  out_.Record(action::Record::Kind::kInterrupted, 0, name);
  job_.OnInterrupted(cause);
  if (!requests_.running()) return Finish();
  out_.Log(LogLevel::kWarning, again ? name + " again: killing every rank now"
                                     : name + ": stopping every rank (again to kill them at once)");
  StopConnecting();
  nodes_.Stop(cause, /*kill_now=*/again);
  Bound(now);
}

// Detaches from all connected nodes. The ready barrier has passed, so all ranks are started. Nodes
// that are not connected are not part of the job, so they are not detached.
void EndCore::Detach() {
  if (std::exchange(detaching_, true)) return;
  StopConnecting();
  detaches_pending_ = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_seen()) continue;
    ++detaches_pending_;
    out_.Do(action::Detach{i});
  }
}

// A node that cannot be detached would still need this front end, so the job ends.
void EndCore::OnDetached(const Result<void>& result, Clock::time_point now) {
  --detaches_pending_;
  if (!result.ok() && std::exchange(detaching_, false)) {
    out_.Log(LogLevel::kError, result.error().message + "; the job is stopped");
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].is_seen()) continue;
      const pb::Cause cause = MakeCause(pb::Cause::NODE_LOST, static_cast<uint32_t>(i),
                                        ExitCode::kUnavailable, result.error().message);
      out_.Do(action::Stop{i, cause, /*kill_now=*/false});
    }
    Bound(now);
  } else if (detaches_pending_ == 0 && detaching_) {
    detached_ = true;
    Finish();
  }
}

// --- Waiting for the nodes to end ---

void EndCore::StopConnecting() {
  if (!std::exchange(connecting_stopped_, true)) out_.Do(action::StopConnecting{});
}

// Starts the time limit for the end, whatever the nodes do.
void EndCore::Bound(Clock::time_point now) {
  if (std::exchange(is_bounded_, true)) return;
  is_brief_ = false;
  out_.Do(action::SetTimer{SessionTimer::kTeardown,
                           now + TeardownLimit(options_.job.timeouts()) + dead_after()});
}

void EndCore::OnNodeEnded(Clock::time_point now) {
  // This check runs at the end of each node. The node that was needed at the last check is usually
  // still needed, so that node is checked first.
  for (size_t looked_at = 0; looked_at < nodes_.size(); ++looked_at) {
    if (IsNeeded(ViewOf(needed_))) return;
    needed_ = (needed_ + 1) % nodes_.size();
  }
  std::vector<EndView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) views.push_back(ViewOf(i));
  const EndDecision decision = DecideEnd(views);
  if (decision == EndDecision::kEnd) return Finish();
  if (decision == EndDecision::kWait) return;
  is_brief_ = true;
  out_.Do(action::SetTimer{SessionTimer::kTeardown, now + kSilentNodeWait});
}

EndView EndCore::ViewOf(size_t index) const {
  return {.ended = nodes_[index].ended,
          .stream_ended = nodes_[index].stream_ended,
          .given_up = job_.given_up().contains(index),
          .is_part = job_.IsPart(index)};
}

void EndCore::OnTimer(std::optional<Clock::duration> reader_still_for, Clock::time_point now) {
  if (!reader_still_for || is_brief_ || output_is_dropped_) {
    GiveUpWaiting();
  } else if (*reader_still_for < kReaderPatience) {
    // A node that waits for this process's terminal is not late, so the time limit starts again.
    is_bounded_ = false;
    Bound(now);
  } else {
    // The node's report may be unread behind its output, so the output is dropped.
    DropOutput();
    out_.Do(action::SetTimer{SessionTimer::kTeardown, now + dead_after()});
  }
}

// After an interrupt, output that a stuck reader does not accept is dropped, so that the user does
// not wait for the reader.
void EndCore::OnReader(std::optional<Clock::duration> still_for) {
  if (was_interrupted_ && still_for && *still_for >= kReaderPatienceAtTheEnd) DropOutput();
}

void EndCore::DropOutput() {
  if (std::exchange(output_is_dropped_, true)) return;
  out_.Log(LogLevel::kWarning,
           "this output is no longer read; the ranks' further output is in their log files only");
  out_.Do(action::DropOutput{});
}

void EndCore::GiveUpWaiting() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_seen()) continue;
    if (job_.node(i).lost_reason.empty()) {
      job_.OnLost(i,
                  "it did not confirm its teardown in time; look for processes of job " +
                      options_.job.job_id() + " there",
                  "");
    }
    out_.Record(action::Record::Kind::kLost, i, LostMessage(job_.node(i)));
    given_up_.insert(i);
    nodes_.Abort(i, "it did not end in time");
  }
  Finish();
}

void EndCore::Finish() {
  if (!std::exchange(finished_, true)) out_.Do(action::Finish{});
}

}  // namespace dslaunch
