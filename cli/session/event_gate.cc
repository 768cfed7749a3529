#include "cli/session/event_gate.h"

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

constexpr double kMostNotices = 200;
constexpr double kNoticesPerSecond = 10;
constexpr double kMostSamples = 20;
// Limit for a node, which sends at most four samples a second.
constexpr double kSamplesPerSecond = 5;

// Limit of the rate of attempts, because no node starts and ends its ranks more often. Each start
// and end of a rank is an event, and an attempt has a few other events.
constexpr double kMostAttemptsPerSecond = 20;
constexpr double kMostAttemptsAtOnce = 100;
constexpr double kEventsOfAttempt = 8;  // number of an attempt's events besides the events of ranks
constexpr uint32_t kMostCountedSlots = 100'000;

double EventsOf(const PeerLimits& limits, double attempts) {
  return attempts * (kEventsOfAttempt + std::min(limits.slots, kMostCountedSlots));
}

}  // namespace

bool RateLimit::Take(Clock::time_point now) {
  const double passed = std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  left_ = std::min(most_, left_ + std::max(passed, 0.0) * per_second_);
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

EventGate::EventGate(const PeerLimits& limits)
    : limits_(limits),
      notices_(kMostNotices, kNoticesPerSecond),
      samples_(kMostSamples, kSamplesPerSecond),
      events_(EventsOf(limits, kMostAttemptsAtOnce), EventsOf(limits, kMostAttemptsPerSecond)) {}

Result<EventGate::Verdict> EventGate::OnEvent(pb::NodeEvent& event, Clock::time_point now) {
  DSL_TRY(CheckNodeEvent(event, limits_));
  if (event.has_log() || event.has_alive() || event.has_status() || event.has_goodput())
    return Verdict::kTake;
  if (event.has_sample()) return samples_.Take(now) ? Verdict::kTake : Verdict::kLeaveOut;
  if (event.has_notice()) return OnNotice(*event.mutable_notice(), now);
  bytes_ += event.ByteSizeLong();
  if (bytes_ > kMaxBytes || !events_.Take(now))
    return Error{ExitCode::kUnavailable, "more events than any job has"};
  return Verdict::kTake;
}

EventGate::Verdict EventGate::OnNotice(pb::Notice& notice, Clock::time_point now) {
  notice_bytes_ = std::min(kMaxNoticeBytes + 1, notice_bytes_ + notice.ByteSizeLong());
  if (notice_bytes_ <= kMaxNoticeBytes && notices_.Take(now)) {
    leaves_out_ = false;
    return Verdict::kTake;
  }
  if (std::exchange(leaves_out_, true)) return Verdict::kLeaveOut;
  notice.set_message("this node sends too many messages; some are left out");
  return Verdict::kTake;
}

}  // namespace dslaunch
