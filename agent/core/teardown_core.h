// Ends a node's part of the job. Stores the first cause, notifies the rendezvous, and sends the
// result to the front end or writes it to a file. Ends the agent once no other process needs it.
#pragma once

#include <optional>

#include "agent/core/agent_outbox.h"
#include "agent/core/front_end_core.h"
#include "agent/core/membership_core.h"
#include "agent/core/node_job.h"
#include "agent/core/workers_core.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/inspect.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// Decides when the agent reports its result and when it quits. A component of AgentCore.
class TeardownCore {
 public:
  using Left = google::protobuf::RepeatedPtrField<pb::LeftProcess>;

  TeardownCore(const NodeJob& job, const WorkersCore& workers, const FrontEndCore& front_end,
               const MembershipCore& membership, AgentOutbox& out)
      : job_(job), workers_(workers), front_end_(front_end), membership_(membership), out_(out) {}

  // Sends `cause` to the rendezvous. Without a rendezvous, expects nothing more from the other
  // nodes.
  void NotifyStop(const pb::Cause& cause) const;
  // Records that this node's part of the job ends because of `cause`. A later call only makes it
  // end faster, if `kill_now`. Precondition: called before WorkersCore::BeginStop.
  void OnStop(const pb::Cause& cause, bool kill_now);
  // Records that all processes of the ranks were reaped except `left`.
  void OnAllReaped(const Left& left);
  // Records that all processes of the ranks have ended while the node was stopping.
  void OnTornDown(Clock::time_point now);
  // Handles the rendezvous' report that all nodes have ended.
  void OnCompleted(const pb::Completed& completed, Clock::time_point now);
  // Stops waiting for the report on all nodes, because the rendezvous is lost.
  void OnRendezvousLost(Clock::time_point now) { Complete({}, now); }
  // Ends the agent once no front end or viewer is left, the node is torn down, and the rendezvous
  // has been notified.
  void QuitIfIdle(Clock::time_point now);

  // Returns the first cause for which this node's part of the job ended.
  const pb::Cause& outcome() const { return outcome_; }
  const Left& left() const { return done_.left(); }
  // Returns whether the rendezvous is over without having reported the end of all nodes.
  bool is_cut_off() const { return out_.is_rendezvous_over() && !done_.completed(); }

 private:
  void Complete(const pb::Completed& completed, Clock::time_point now);
  bool MayQuit(Clock::time_point now) const;
  void WriteResult();
  void EndIfAllIsReported() const;

  const NodeJob& job_;
  const WorkersCore& workers_;
  const FrontEndCore& front_end_;
  const MembershipCore& membership_;
  AgentOutbox& out_;
  pb::NodeDone done_;  // final status, from the reports that this node has received so far
  pb::Cause outcome_;
  std::optional<Clock::time_point> completed_at_;
  // Latest time to quit, even if other nodes were not notified; nullopt before the node is torn
  // down.
  std::optional<Clock::time_point> quit_at_;
  bool result_written_ = false;
  bool quits_ = false;
};

}  // namespace dslaunch
