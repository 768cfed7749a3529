// Decides which of several failures was the first, independently of the nodes' clocks. All
// functions are pure.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// A failure, with the interval [earliest, latest] in which the failure happened by the clock of the
// rendezvous.
struct FailureReport {
  pb::Cause cause;
  uint32_t node = 0;  // node that reported the failure, or that was lost
  Clock::time_point earliest;
  Clock::time_point latest;
};

// Returns the report of a failure that `node` sent. The failure happened `failed.age_us` before the
// message was sent. Sending took at most the round trip, or up to a second if the round trip is
// unknown.
FailureReport ReportOf(const pb::WorkerFailed& failed, uint32_t node, Clock::time_point arrival);

// Returns the report of a failure that the rendezvous detected at `now` and that happened after
// `since`. For a lost node, `since` is the time of its last message.
FailureReport ReportSince(const pb::Cause& cause, uint32_t node, Clock::time_point since,
                          Clock::time_point now);

struct FirstCause {
  pb::Cause cause;
  std::vector<uint32_t> victims;  // ranks that failed because of the cause, ascending
  std::string reason;             // reason for choosing this cause; never empty
};

// Chooses the first cause in three steps:
// 1. Considers only the first of these groups that is not empty:
//    - failures that are not victims (Cause.victim), of ranks that were not being stopped
//    - failures that are not victims, of ranks that were being stopped
//    - victims that could not connect to another rank; the chosen one then counts as the cause
//    - victims whose peer did not answer in time
//    - other victims, whose connections ended, maybe because ranks of the earlier groups exited
//    This step ignores times, because a victim may be reported before its cause: a lost node is
//    detected only after seconds without a heartbeat, and a program may close its connections long
//    before it exits.
// 2. Of these failures, removes those whose interval lies after the interval of another one,
//    because they happened later. Failures of one node happened in the order of their reports.
// 3. Of the rest, chooses the failure that was reported first.
// Precondition: `reports` is in order of arrival and not empty.
FirstCause ChooseFirstCause(const std::vector<FailureReport>& reports);

// Returns whether the running ranks may reveal more than the failed ranks. This is the case if all
// failures were caused by other ranks, and at least one of the failed ranks timed out or could not
// connect.
bool AreRunningRanksOfInterest(const std::vector<FailureReport>& reports);

// Collects the failures of an attempt, in order of arrival.
class FailureLog {
 public:
  // Discards all reports, because another attempt begins.
  void Clear() { reports_.clear(); }
  void Add(FailureReport report) {
    if (!is_closed_) reports_.push_back(std::move(report));
  }
  // Discards all reports and ignores later reports, because they no longer change the job's cause.
  void Close() {
    Clear();
    is_closed_ = true;
  }
  bool is_closed() const { return is_closed_; }
  const std::vector<FailureReport>& reports() const { return reports_; }
  // Returns the first cause. Precondition: reports() is not empty.
  pb::Cause First() const { return ChooseFirstCause(reports_).cause; }

 private:
  std::vector<FailureReport> reports_;
  bool is_closed_ = false;
};

}  // namespace dslaunch
