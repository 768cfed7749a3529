// Takes the events of one node as long as they keep the rules (proto/wire/peer_check.h) and their
// share of this process's memory, disk and terminal. Pure: time is passed in.
#pragma once

#include <cstdint>

#include "base/deadline.h"
#include "base/error.h"
#include "proto/agent.pb.h"
#include "proto/wire/peer_check.h"

namespace dslaunch {

// Allows `most` at once, and `per_second` after that.
class RateLimit {
 public:
  RateLimit(double most, double per_second) : most_(most), per_second_(per_second), left_(most) {}

  // False when there were too many.
  bool Take(Clock::time_point now);

 private:
  const double most_;
  const double per_second_;
  double left_;
  Clock::time_point last_;
};

class EventGate {
 public:
  // Bytes of all events of a node except output, heartbeats, status lines and samples. More end the
  // job.
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  // Bytes of its notices. More are left out.
  static constexpr uint64_t kMaxNoticeBytes = uint64_t{8} << 20;

  enum class Verdict { kTake, kLeaveOut };

  explicit EventGate(const PeerLimits& limits = {});

  // Cuts texts that are too long. If notices arrive too fast, replaces the first by a sentence
  // about it and leaves the others out. Samples that arrive too fast are left out. An error names
  // the rule that the node has broken, and continues "its agent sent".
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
