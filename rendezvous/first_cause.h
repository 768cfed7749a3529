// Which of several failures was the first: a pure decision that trusts no node's clock.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// A failure, and when it happened by the rendezvous' clock: within [earliest, latest].
struct FailureReport {
  pb::Cause cause;
  uint32_t node = 0;  // that told it, or that is lost
  Clock::time_point earliest;
  Clock::time_point latest;
};

// What a node told: it happened `age` before it was sent, and came within the round trip. Without a
// known round trip it may have been a second on its way.
FailureReport ReportOf(const pb::WorkerFailed& failed, uint32_t node, Clock::time_point arrival);

// What the rendezvous noticed at `now`, and what happened after `since`: for a lost node, after it
// was last heard.
FailureReport ReportSince(const pb::Cause& cause, uint32_t node, Clock::time_point since,
                          Clock::time_point now);

struct FirstCause {
  pb::Cause cause;
  std::vector<uint32_t> victims;  // ranks that failed because of it, ascending
  std::string reason;             // why this one; always given
};

// `reports` are in order of arrival and not empty. The first cause is, in this order:
// 1. no victim (Cause.victim), unless all are: what a victim fell to may be reported later, as a
//    node that is lost is known to be lost only after seconds of silence;
// 2. not later than any other: one whose interval lies before another's came before it, and so did
//    what one and the same node reported before;
// 3. the one that arrived first.
FirstCause ChooseFirstCause(const std::vector<FailureReport>& reports);

}  // namespace dslaunch
