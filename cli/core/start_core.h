// Starts the job of a session: connects to all nodes, prepares them and runs them.
//
// A step begins when all nodes have answered the previous step without an error. Once it is certain
// that the job cannot start, the remaining nodes get two more seconds to answer. Thus nodes with
// other problems are named too, and the session does not wait until their time-outs.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/core/job_state.h"
#include "cli/core/node_requests.h"
#include "cli/core/outcome.h"
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"

namespace dslaunch {

// The part of SessionCore that starts the job. Changes only its own state and the objects that it
// gets by a reference that is not const.
class StartCore {
 public:
  StartCore(const SessionOptions& options, Clock::time_point now, NodeRequests& requests,
            SessionNodes& nodes, JobState& job, SessionOutbox& out);

  void Start();
  // Fails the start, because the job's keys cannot be created.
  void OnCannotStart(Error error) { Fail(0, std::move(error)); }
  void OnConnected(size_t index, Result<NodeAddresses> addresses, Clock::time_point now);
  void OnPrepared(size_t index, Result<pb::PreparedNode> info, Clock::time_point now);
  void OnConnectTimer();

  bool has_failed() const { return has_failed_; }
  // Returns the end of a session whose job did not start. Precondition: has_failed().
  SessionEnd End() const;

 private:
  void OnAllConnected();
  // Chooses the host of the rendezvous among the nodes that are reached.
  void ChooseHost();
  void PrepareMore();
  bool CanStartWithoutFailures() const;
  size_t Failures() const;
  void RunAll();
  void Fail(size_t index, Error error);
  void Fail();
  std::string SinceStart(Clock::time_point now) const;

  const SessionOptions& options_;
  const Clock::time_point started_at_;
  NodeRequests& requests_;
  SessionNodes& nodes_;
  JobState& job_;
  SessionOutbox& out_;
  // Failures of connecting or preparing, indexed by node.
  std::vector<std::optional<Error>> failures_;
  size_t pending_ = 0;  // number of missing answers in the current step
  size_t next_to_prepare_ = 0;
  size_t num_preparing_ = 0;
  size_t most_preparing_ = 0;
  // True if the start will fail and other nodes get a short time to report their failures.
  bool giving_up_ = false;
  bool has_failed_ = false;
};

}  // namespace dslaunch
