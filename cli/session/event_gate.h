// Accepts the events of a node as long as they are valid (proto/wire/peer_check.h) and do not
// exceed the node's share of this process's memory, disk and terminal. The caller passes the time.
#pragma once

#include <cstdint>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/agent.pb.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {

// Allows a burst of `most` events, and `per_second` events a second after that.
class RateLimit {
 public:
  RateLimit(double most, double per_second) : most_(most), per_second_(per_second), left_(most) {}

  // Counts an event. Returns false if the event exceeds the limit.
  bool Take(Clock::time_point now);

 private:
  const double most_;
  const double per_second_;
  double left_;
  Clock::time_point last_;
};

class EventGate {
 public:
  // Limit of the bytes of a node's events, not counting output, heartbeats, status lines and
  // samples. If the limit is exceeded, the job ends.
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  // Limit of the bytes of a node's notices. Notices beyond the limit are left out.
  static constexpr uint64_t kMaxNoticeBytes = uint64_t{8} << 20;

  enum class Verdict { kTake, kLeaveOut };

  explicit EventGate(const PeerLimits& limits = {});

  // Decides whether to accept or leave out an event. Cuts texts that are too long. If notices
  // arrive too fast, replaces the first excess notice by a sentence that reports this, and drops
  // the others. Drops samples that arrive too fast. An error names the rule that the node violated,
  // and continues the sentence "its agent sent".
  Result<Verdict> OnEvent(pb::NodeEvent& event, Clock::time_point now);

 private:
  Verdict OnNotice(pb::Notice& notice, Clock::time_point now);

  const PeerLimits limits_;
  RateLimit notices_;
  RateLimit samples_;
  RateLimit events_;  // limit of events that change the state of the job
  uint64_t bytes_ = 0;
  uint64_t notice_bytes_ = 0;
  bool leaves_out_ = false;
};

}  // namespace dslaunch
