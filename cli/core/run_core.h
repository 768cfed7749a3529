// Handles the nodes of a running job: the effects of a node's events on the other nodes, losses of
// nodes, and reconnected nodes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "cli/core/contact_core.h"
#include "cli/core/end_core.h"
#include "cli/core/failover_core.h"
#include "cli/core/job_state.h"
#include "cli/core/node_requests.h"
#include "cli/core/session_nodes.h"
#include "cli/core/session_options.h"
#include "cli/core/session_outbox.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// The part of SessionCore that handles nodes while the job runs. Changes only its own state and the
// objects that it gets by a reference that is not const.
class RunCore {
 public:
  RunCore(const SessionOptions& options, const NodeRequests& requests, SessionNodes& nodes,
          JobState& job, const EndCore& end, const ContactCore& contact,
          const FailoverCore& failover, SessionOutbox& out);

  void OnEvent(size_t index, const pb::NodeEvent& event, Clock::time_point now);
  // Handles the end of a node's events. Returns whether nothing more will arrive from the node.
  bool OnStreamEnd(size_t index);
  void OnBrokenRules(size_t index, const std::string& what);
  void OnLinkEnded(size_t index, bool is_empty, const std::string& last_output);
  // Tries to reconnect to a lost node, unless the job is ending or continues without it.
  void Reconnect(size_t index);
  // Handles the result of an attempt to reach a node again. Returns whether the node is connected.
  bool OnConnected(size_t index, Result<NodeAddresses> addresses);

  // Handles the answer of such a node to the request to prepare. Returns whether the node can run;
  // if not, the node is dismissed and may be reached again.
  bool OnPrepared(size_t index, Result<pb::PreparedNode> info);

  // Stops the job if it cannot start without the node `index`.
  void LoseAtStart(size_t index, const std::string& why);
  // Ends the nodes that the other nodes have declared lost.
  void AbandonGivenUp(Clock::time_point now);
  // Keeps a node that was reported as lost but has joined the new rendezvous.
  void OnKept(size_t index);
  // Warns, once in an attempt, if some ranks succeeded long ago while others still run.
  void WatchUnevenEnd(Clock::time_point now);

 private:
  struct Peer {
    int attempts = 0;  // number of attempts to reconnect to the node since its ranks last started
    bool is_tried = false;  // true while an attempt to reach the node is in progress
  };

  void Connect(size_t index);
  pb::Cause LossOf(size_t index, const std::string& why) const;

  const SessionOptions& options_;
  const NodeRequests& requests_;
  SessionNodes& nodes_;
  JobState& job_;
  const EndCore& end_;
  const ContactCore& contact_;
  const FailoverCore& failover_;
  SessionOutbox& out_;
  std::vector<Peer> peers_;  // reconnection state of each node, indexed by node
  size_t most_slots_ = 0;    // largest number of slots of a node
  // Times at which nodes were first reported as lost, by node.
  std::map<size_t, Clock::time_point> given_up_at_;
  // Time of the newest success of a rank in this attempt; nullopt once the warning about uneven
  // ends is printed.
  std::optional<Clock::time_point> newest_success_;
};

}  // namespace dslaunch
