// Makes the decisions of a session, without a network: returns actions for each answer, event,
// signal and timer. Uses no clock, threads or I/O; LaunchSession, tests and the simulator drive it.
//
//   connecting -> preparing -> running -> ending        each step begins once all nodes answered
//
// If the job can be restarted, the session reconnects to nodes that are lost while the job runs.
// When the node that hosts the rendezvous is lost, another host is chosen once the lost node has
// certainly ended its ranks (failover_core.h). Once the job is ending, the session ends in bounded
// time, whatever the nodes do.
//
// The state is divided among parts. All of them share the nodes' connections (SessionNodes), the
// requests to the nodes (NodeRequests), the state of the job (JobState) and the outbox. Apart from
// these, a part changes only its own fields. It reads other parts through const references, and
// changes them only by requests in the outbox, which SessionCore carries out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/core/contact_core.h"
#include "cli/core/end_core.h"
#include "cli/core/failover_core.h"
#include "cli/core/job_goodput.h"
#include "cli/core/job_state.h"
#include "cli/core/node_requests.h"
#include "cli/core/outcome.h"
#include "cli/core/run_core.h"
#include "cli/core/session_action.h"
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"
#include "cli/core/start_core.h"

namespace dslaunch {

// The longest pause before the session tries again to reach a node.
inline constexpr milliseconds kMaxRetryWait(60'000);

// The state machine of one session. Each On... function returns the actions to carry out, in order;
// after Finish they return no actions. Not thread-safe.
class SessionCore {
 public:
  using Actions = std::vector<SessionAction>;
  using PlantedBug = FailoverCore::PlantedBug;

  // Prepares a session that has not started yet. `options` must outlive this object.
  SessionCore(const SessionOptions& options, Clock::time_point now,
              PlantedBug bug = PlantedBug::kNone);

  Actions Start(Clock::time_point now);
  // Fails the session, because the job's keys cannot be created.
  Actions OnCannotStart(Error error, Clock::time_point now);

  // Handles the result of connecting to a node, at the start or when the node is reached again.
  Actions OnConnected(size_t index, Result<NodeAddresses> addresses, Clock::time_point now);

  // Handles the node's answer to the request to prepare, at the start or when the node is reached
  // again.
  Actions OnPrepared(size_t index, Result<pb::PreparedNode> info, Clock::time_point now);

  // Handles an event of a node while the job runs. Output of ranks is not passed to this function;
  // such output counts only as a sign of life of the node.
  Actions OnEvent(size_t index, const pb::NodeEvent& event, Clock::time_point now);

  // Handles the end of a node's stream of events.
  Actions OnStreamEnd(size_t index, Clock::time_point now);
  // Ends the job, because the node's agent sent an invalid message, described by `what`. Further
  // events of the node are ignored.
  Actions OnBrokenRules(size_t index, const std::string& what, Clock::time_point now);
  // Handles the end of a node's link. `last_output` is the last output of the supervisor; may be
  // empty.
  Actions OnLinkEnded(size_t index, bool supervisor_ended, const std::string& last_output,
                      Clock::time_point now);

  // Handles a node's answer to the action Failover. `host` is the node that the request named as
  // the new host of the rendezvous.
  Actions OnFailoverAnswered(size_t index, size_t host, const Result<pb::RendezvousOpened>& opened,
                             Clock::time_point now);

  // Handles a node's answer to the action Renew; `clock_us` is nullopt if no answer arrived in
  // time.
  Actions OnRenewed(size_t index, std::optional<uint64_t> clock_us, Clock::time_point now);

  // Handles a node's answer to the action Detach.
  Actions OnDetached(const Result<void>& result, Clock::time_point now);

  // Handles a signal that this process received from the user.
  Actions OnSignal(int signal_number, Clock::time_point now);

  // Handles the expiry of a timer, not earlier than SetTimer::when. `reader_still_for` is the time
  // for which the reader of this process's output has accepted nothing; nullopt if the reader does
  // not block messages.
  Actions OnTimer(SessionTimer timer, std::optional<Clock::duration> reader_still_for,
                  Clock::time_point now);

  // Returns the result of the session. `cancelled` is Slurm's own description of how it ended the
  // job's step; empty if Slurm did not end it. Precondition: Finish was returned.
  SessionEnd End(const std::string& cancelled = "") const;

  ContactCore& contact() { return contact_; }
  const JobState& job_state() const { return job_state_; }
  const SessionNodes& nodes() const { return nodes_; }
  const EndCore& end() const { return end_; }
  const JobGoodput& goodput() const { return goodput_; }

 private:
  // Carries out the requests in the outbox.
  void Settle(Clock::time_point now);
  void CarryOut(const SessionRequest& request, Clock::time_point now);
  Actions Take(Clock::time_point now);
  void Watch(std::optional<Clock::duration> reader_still_for, Clock::time_point now);

  const SessionOptions& options_;
  JobState job_state_;
  SessionOutbox out_;
  Actions actions_;  // actions that the next call of Take returns
  NodeRequests requests_;
  SessionNodes nodes_;
  StartCore start_;
  EndCore end_;
  ContactCore contact_;
  FailoverCore failover_;
  RunCore run_;
  JobGoodput goodput_;
};

}  // namespace dslaunch
