// Decides which of several failures was the first. Pure, and independent of the nodes' clocks.
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
  uint32_t node = 0;  // that reported it, or that is lost
  Clock::time_point earliest;
  Clock::time_point latest;
};

// A node's report: the failure happened `age` before the report was sent, which took at most the
// round trip. Without a known round trip up to a second is assumed.
FailureReport ReportOf(const pb::WorkerFailed& failed, uint32_t node, Clock::time_point arrival);

// A failure that the rendezvous noticed at `now` and that happened after `since`: for a lost node,
// the time it was last seen.
FailureReport ReportSince(const pb::Cause& cause, uint32_t node, Clock::time_point since,
                          Clock::time_point now);

struct FirstCause {
  pb::Cause cause;
  std::vector<uint32_t> victims;  // ranks that failed because of it, ascending
  std::string reason;             // why this one; always given
};

// `reports` are in order of arrival and not empty. The first cause is, in this order:
// 1. no victim (Cause.victim), unless all are: the cause of a victim may be reported later than the
//    victim, because a lost node is noticed only after seconds without a heartbeat, and a program
//    may close its connections long before it ends;
//    nor a rank that failed while it was being stopped, unless all others are victims.
//    Of victims alone, one that could not connect, which then is the cause itself and no victim;
//    else one that timed out; else one whose connection ended, as connections to those do;
// 2. not later than any other: one whose interval lies before another's came before it, and so did
//    what one and the same node reported before;
// 3. the one that arrived first.
FirstCause ChooseFirstCause(const std::vector<FailureReport>& reports);

// Whether the ranks that still run may tell more than those that failed: all failures are about
// other ranks, and one of them timed out or could not connect.
bool AreRunningRanksOfInterest(const std::vector<FailureReport>& reports);

}  // namespace dslaunch
