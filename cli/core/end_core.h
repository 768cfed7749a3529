// Ends a session in bounded time, whatever the nodes do, and with a full report. Also ends a
// session on the user's signal, or by detaching from the job.
#pragma once

#include <cstddef>
#include <optional>
#include <set>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/core/end_decision.h"
#include "cli/core/job_state.h"
#include "cli/core/node_requests.h"
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"

namespace dslaunch {

// The part of SessionCore that ends the session. Changes only its own state and the objects that it
// gets by a reference that is not const.
class EndCore {
 public:
  EndCore(const SessionOptions& options, const NodeRequests& requests, SessionNodes& nodes,
          JobState& job, SessionOutbox& out)
      : options_(options), requests_(requests), nodes_(nodes), job_(job), out_(out) {}

  // Handles the user's request to end the job: the first signal stops the ranks, the second signal
  // kills them at once.
  void OnInterrupt(int signal_number, Clock::time_point now);
  // Detaches from the job, which the nodes then continue alone. Precondition: all ranks are
  // started.
  void Detach();

  // Handles a node's answer to the request to detach.
  void OnDetached(const Result<void>& result, Clock::time_point now);
  // Cancels a detach in progress, because the job must end instead.
  void CancelDetach() { detaching_ = false; }
  // Stops connecting to nodes for the rest of the session.
  void StopConnecting();
  // Starts the time limit of the wait for the nodes, because the job is ending.
  void Bound(Clock::time_point now);
  // Checks whether the session can end, because nothing more will arrive from a node.
  void OnNodeEnded(Clock::time_point now);

  // Handles the expiry of the time limit. `reader_still_for` is the time for which the reader of
  // this process's output has accepted nothing; nullopt if the reader does not block messages (see
  // OnReader()).
  void OnTimer(std::optional<Clock::duration> reader_still_for, Clock::time_point now);
  // Handles the state of the reader of this process's output, such as a terminal. `still_for` is
  // the time for which the reader has accepted nothing and has thus blocked the nodes' messages;
  // nullopt if the reader does not block messages.
  void OnReader(std::optional<Clock::duration> still_for);
  // Stops waiting for the nodes that have not ended, and ends the session.
  void GiveUpWaiting();
  void Finish();

  bool connecting_stopped() const { return connecting_stopped_; }
  bool was_interrupted() const { return was_interrupted_; }
  bool detaching() const { return detaching_; }
  bool detached() const { return detached_; }
  bool finished() const { return finished_; }
  // Returns whether some output of ranks was not shown, because the terminal or pipe did not accept
  // it.
  bool output_is_dropped() const { return output_is_dropped_; }
  // Returns whether the node did not end in time, so that the session no longer waits for it.
  bool HasGivenUp(size_t index) const { return given_up_.contains(index); }

 private:
  void DropOutput();
  EndView ViewOf(size_t index) const;
  milliseconds dead_after() const { return milliseconds(options_.job.timeouts().dead_ms()); }

  const SessionOptions& options_;
  const NodeRequests& requests_;
  SessionNodes& nodes_;
  JobState& job_;
  SessionOutbox& out_;
  std::set<size_t> given_up_;  // nodes that did not end in time and are no longer awaited
  size_t needed_ = 0;          // node for whose end the session was last found to be waiting
  bool connecting_stopped_ = false;
  bool is_bounded_ = false;
  bool is_brief_ = false;  // whether the timer waits only for silent nodes
  bool output_is_dropped_ = false;
  bool was_interrupted_ = false;
  std::optional<Clock::time_point> interrupted_at_;
  bool detaching_ = false;
  size_t detaches_pending_ = 0;
  bool detached_ = false;
  bool finished_ = false;
};

}  // namespace dslaunch
