// Decides which of several failures was the first. Pure, and independent of the nodes' clocks.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// A failure and the interval [earliest, latest] in which it happened, by the rendezvous' clock.
struct FailureReport {
  pb::Cause cause;
  uint32_t node = 0;  // node that reported the failure or was lost
  Clock::time_point earliest;
  Clock::time_point latest;
};

// Returns a node's report: the failure happened `age` before the report was sent, and sending took
// at most the round trip, or up to a second if that is unknown.
FailureReport ReportOf(const pb::WorkerFailed& failed, uint32_t node, Clock::time_point arrival);

// Returns the report of a failure that the rendezvous noticed at `now` and that happened after
// `since`, for a lost node the time of its last message.
FailureReport ReportSince(const pb::Cause& cause, uint32_t node, Clock::time_point since,
                          Clock::time_point now);

struct FirstCause {
  pb::Cause cause;
  std::vector<uint32_t> victims;  // ranks that failed because of the cause, ascending
  std::string reason;             // why this cause was chosen; never empty
};

// Chooses the first cause by these rules, in this order:
// 1. It is not a victim (Cause.victim) unless all are. A victim's cause may be reported later than
//    the victim, because a lost node is noticed only after seconds without a heartbeat, and because
//    a program may close its connections long before it exits.
//    Nor is it a rank that failed while being stopped, unless all others are victims.
//    Among victims only: one that could not connect, which is then itself the cause and not a
//    victim; else one that timed out; else one whose connection ended, as connections to the former
//    do.
// 2. It is not later than any other: a failure whose interval lies before another's came first, and
//    so did an earlier report of the same node.
// 3. It arrived first.
// Precondition: `reports` is in order of arrival and not empty.
FirstCause ChooseFirstCause(const std::vector<FailureReport>& reports);

// Returns whether the running ranks may reveal more than the failed ones: all failures are about
// other ranks, and one of them timed out or could not connect.
bool AreRunningRanksOfInterest(const std::vector<FailureReport>& reports);

// The failures of an attempt, in order of arrival.
class FailureLog {
 public:
  // Begins another attempt.
  void Clear() { reports_.clear(); }
  void Add(FailureReport report) {
    if (!is_closed_) reports_.push_back(std::move(report));
  }
  // Discards all reports and ignores later ones, because they do not change the job's cause.
  void Close() {
    Clear();
    is_closed_ = true;
  }
  bool is_closed() const { return is_closed_; }
  const std::vector<FailureReport>& reports() const { return reports_; }
  // Precondition: reports() is not empty.
  pb::Cause First() const { return ChooseFirstCause(reports_).cause; }

 private:
  std::vector<FailureReport> reports_;
  bool is_closed_ = false;
};

}  // namespace dslaunch
