// Tracks the agent's front end: its lease, its connection, its event stream, and whether the job
// was detached from the front end.
#pragma once

#include <optional>
#include <string>

#include "agent/core/agent_outbox.h"
#include "agent/core/node_job.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/wire/lease.h"

namespace dslaunch {

// Decides when the front end is lost, and then ends this node's part of the job. A component of
// AgentCore.
class FrontEndCore {
 public:
  // The readers of this node's events: the front end and the viewers.
  struct Readers {
    bool front_end_has_all = false;  // whether the last event was sent to the front end
    bool has_viewers = false;        // whether some viewer has not received the last event
  };

  // Begins the first lease at `now`; its holder is a front end that has not prepared a job yet.
  FrontEndCore(const NodeJob& job, AgentOutbox& out, BootClock::time_point now);

  // Sets what the readers have received. Call this before each event if that may have changed.
  void SetReaders(const Readers& readers) { readers_ = readers; }
  const Readers& readers() const { return readers_; }

  // Begins the lease of the prepared job, with the job's lease time.
  void OnPrepared() { SetLease(milliseconds(job_.timeouts().lease_ms())); }
  // Continues the job without its front end. Viewers attach at `socket_path`.
  void OnDetach(const std::string& socket_path, Clock::time_point now);
  // Records that the Run stream has ended or broken. Usually the supervisor then reports the end of
  // the front end; if it reports nothing in time, the front end counts as lost.
  void OnStreamOver(Clock::time_point now);
  // Records that the connection to the front end broke and may be resumed or, if `is_broken` is
  // false, that it was resumed.
  void OnConnection(bool is_broken);
  // Makes the supervisor end the node if the connection to the front end is broken, because no
  // front end can reach the node any more. Does nothing if the connection is not broken.
  void OnUnreachable() const;
  // Handles the exit or loss of the front end. Ends this node's part of the job unless all results
  // of the node were reported.
  void OnGone();
  void OnSupervisorGone();
  // Shortens the front end's lease to the time after which a node counts as lost, if it is longer.
  // This node is empty and cut off from the other nodes, so it has nothing to wait for. Does
  // nothing if the job is detached.
  void OnCutOff();
  void OnTick(Clock::time_point now, BootClock::time_point boot_now);

  // Renews the front end's lease and returns the reply. Thread-safe.
  pb::RenewReply Renew(const pb::RenewRequest& request, BootClock::time_point now);
  // Returns the time left of the lease, as Lease::Left() does. Thread-safe.
  std::optional<milliseconds> LeaseLeft(BootClock::time_point now) { return lease_.Left(now); }
  // Returns whether the front end has missed several renewals of its lease. This node must then
  // send `alive` events, because no reply to a renewal shows that the node is alive. A front end
  // that has declared a node lost renews its lease again only after an event from the node.
  bool IsUnasked(BootClock::time_point now) const;

  bool gone() const { return gone_; }
  bool detached() const { return detached_at_.has_value(); }
  std::optional<Clock::time_point> detached_at() const { return detached_at_; }
  // Returns whether the front end is connected, so that it can choose another host for the
  // rendezvous.
  bool CanNameRendezvous() const {
    return !detached() && !gone_ && !is_link_broken_ && !stream_over_at_;
  }

 private:
  void SetLease(milliseconds length);

  const NodeJob& job_;
  AgentOutbox& out_;
  Lease lease_;
  Readers readers_;
  bool gone_ = false;
  bool is_link_broken_ = false;  // whether the connection broke and may be resumed
  std::optional<Clock::time_point> stream_over_at_;
  std::optional<Clock::time_point> detached_at_;
};

}  // namespace dslaunch
