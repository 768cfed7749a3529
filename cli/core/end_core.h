// How a session ends: in bounded time, whatever the nodes do, and with a full report; on the user's
// signal; or by detaching from its job.
#pragma once

#include <cstddef>
#include <optional>
#include <set>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/core/end_decision.h"
#include "cli/core/job_state.h"
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"

namespace dslaunch {

// See SessionCore for what all parts have in common.
class EndCore {
 public:
  EndCore(const SessionOptions& options, SessionNodes& nodes, JobState& job, SessionOutbox& out)
      : options_(options), nodes_(nodes), job_(job), out_(out) {}

  // The user wants the job to end. The second signal kills.
  void OnInterrupt(int signal_number, Clock::time_point now);
  // Leaves the job to its nodes. Precondition: all ranks are started.
  void Detach();
  void OnDetached(const Result<void>& result, Clock::time_point now);
  // The job has to end after all.
  void CancelDetach() { detaching_ = false; }
  // The end has begun: bounds the wait for the nodes.
  void Bound(Clock::time_point now);
  // Nothing more will arrive from a node.
  void OnNodeEnded(Clock::time_point now);
  // `reader_still_for`: see OnReader.
  void OnTimer(std::optional<Clock::duration> reader_still_for, Clock::time_point now);
  // The terminal or another reader of this output holds up the messages of the nodes, and has read
  // nothing for so long; nullopt: it holds nothing up.
  void OnReader(std::optional<Clock::duration> still_for);
  // Ends the session without the nodes that have not ended.
  void GiveUpWaiting();
  void Finish();

  bool was_interrupted() const { return was_interrupted_; }
  bool detaching() const { return detaching_; }
  bool detached() const { return detached_; }
  bool finished() const { return finished_; }
  // Some output of ranks was not shown, because the terminal or pipe did not take it.
  bool output_is_dropped() const { return output_is_dropped_; }
  // The node did not end in time: its end is not waited for any longer.
  bool HasGivenUp(size_t index) const { return given_up_.contains(index); }

 private:
  void DropOutput();
  EndView ViewOf(size_t index) const;
  milliseconds dead_after() const { return milliseconds(options_.job.timeouts().dead_ms()); }

  const SessionOptions& options_;
  SessionNodes& nodes_;
  JobState& job_;
  SessionOutbox& out_;
  std::set<size_t> given_up_;  // nodes that did not end in time
  size_t needed_ = 0;          // the node whose end was last found to be waited for
  bool is_bounded_ = false;
  bool is_brief_ = false;  // the timer was set for silent nodes alone
  bool output_is_dropped_ = false;
  bool was_interrupted_ = false;
  std::optional<Clock::time_point> interrupted_at_;
  bool detaching_ = false;
  size_t detaches_pending_ = 0;
  bool detached_ = false;
  bool finished_ = false;
};

}  // namespace dslaunch
