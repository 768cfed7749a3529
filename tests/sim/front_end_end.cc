// How the front end ends: by itself, with an exit code, or otherwise.
#include <utility>
#include <vector>

#include "cli/session/end_decision.h"
#include "cli/session/outcome.h"
#include "proto/wire/cause.h"
#include "tests/sim/front_end.h"
#include "tests/sim/node_visit.h"

namespace dslaunch::sim {
namespace {

// As in cli/session/session_end.cc.
constexpr int64_t kTeardownSlackMs = 5'000;
constexpr int64_t kSilentNodeWaitMs = 2'000;

}  // namespace

void FrontEnd::ArmTeardownTimer() {
  if (std::exchange(teardown_armed_, true)) return;
  const pb::Timeouts& times = world_.job.timeouts();
  SetTeardownTimer(times.grace_ms() + times.teardown_ms() + times.dead_ms() + kTeardownSlackMs);
}

void FrontEnd::SetTeardownTimer(int64_t ms) {
  world_.timeline.After(ms, &process_, [this, number = ++teardown_number_] {
    if (number == teardown_number_) GiveUpWaiting();
  });
}

void FrontEnd::GiveUpWaiting() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_heard()) continue;
    if (story_.node(i).lost_reason.empty())
      story_.OnLost(i, "it did not say in time that it is empty", "");
  }
  Finish();
}

void FrontEnd::EndIfAllEnded() {
  std::vector<EndView> views;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    views.push_back({.ended = nodes_[i].ended,
                     .stream_ended = nodes_[i].stream_ended,
                     .given_up = story_.IsGivenUp(i),
                     .is_part = story_.IsPart(i)});
  }
  const EndDecision decision = DecideEnd(views);
  if (decision == EndDecision::kEnd) return Finish();
  if (decision == EndDecision::kWaitBriefly) SetTeardownTimer(kSilentNodeWaitMs);
}

void FrontEnd::Finish() {
  if (process_.gone) return;
  JobEnd end;
  if (failed_to_start_) {
    end.cause = MakeCause(pb::Cause::START_FAILED, 0, ExitCode::kUnavailable, "a node failed");
    end.exit_code = end.cause.exit_code();
  } else if (!running_) {
    end.cause = *story_.Facts().interrupted;
    end.exit_code = end.cause.exit_code();
  } else {
    end = DecideJobEnd(story_.Facts());
  }
  exit_code_ = end.exit_code;
  Say([&] { return "exits with " + std::to_string(end.exit_code) + ": " + CauseText(end.cause); });
  world_.invariants.OnExit(end);
  Crash();
}

// --- Faults ---

// Its descriptors are closed, whatever ends it.
void FrontEnd::Crash() {
  for (size_t i = 0; i < nodes_.size(); ++i) SayGoodbye(i);
  process_.gone = true;
}

void FrontEnd::LosePower() { process_.gone = true; }

void FrontEnd::Interrupt() {
  pb::Cause cause =
      MakeCause(pb::Cause::INTERRUPTED, 0, ExitCode::kInterrupted, "interrupted by SIGINT");
  story_.OnInterrupted(cause);
  if (!running_) return Finish();
  connector_stopped_ = true;
  for (size_t i = 0; i < nodes_.size(); ++i) SendStop(i, cause);
  ArmTeardownTimer();
}

}  // namespace dslaunch::sim
