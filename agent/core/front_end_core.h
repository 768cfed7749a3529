// Tracks the agent's front end: its lease, its connection, its event stream, and whether the job
// was detached from it.
#pragma once

#include <optional>
#include <string>

#include "agent/core/agent_outbox.h"
#include "agent/core/node_job.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/wire/lease.h"

namespace dslaunch {

// Decides when the front end is lost and ends this node's part of the job then. See AgentCore for
// the rules of all parts.
class FrontEndCore {
 public:
  // Tells which readers of the events have received the last event.
  struct Readers {
    bool front_end_has_all = false;  // true if the last event was sent to the front end
    bool has_viewers = false;        // true if the last event was not yet sent to every viewer
  };

  // The first lease begins at `now`; its holder is a front end that has not prepared a job yet.
  FrontEndCore(const NodeJob& job, AgentOutbox& out, BootClock::time_point now);

  // Sets what readers have received. Precondition: called before each event if that may have
  // changed.
  void SetReaders(const Readers& readers) { readers_ = readers; }
  const Readers& readers() const { return readers_; }

  // Begins the lease of the prepared job.
  void OnPrepared() { SetLease(milliseconds(job_.timeouts().lease_ms())); }
  // Called when the job no longer needs its front end. Viewers attach at `socket_path`.
  void OnDetach(const std::string& socket_path, Clock::time_point now);
  // Called when the Run stream has ended or broken. Usually the supervisor then reports the end of
  // the front end; if it reports nothing in time, the front end counts as gone.
  void OnStreamOver(Clock::time_point now);
  // Called when the connection broke and may be resumed, or when it was resumed.
  void OnConnection(bool is_broken);
  // Called when no front end can reach this node any more. Ends the node if its connection is
  // broken.
  void OnUnreachable() const;
  // Called when the front end has exited or is lost. Ends this node's part unless all of its
  // results were reported.
  void OnGone();
  void OnSupervisorGone();
  // Called when this node is empty and cut off from the other nodes. It has nothing to wait for, so
  // its lease becomes shorter.
  void OnCutOff();
  void OnTick(Clock::time_point now, BootClock::time_point boot_now);

  // Renews the front end's lease. Thread-safe.
  pb::RenewReply Renew(const pb::RenewRequest& request, BootClock::time_point now);
  // Returns the time left of the lease, see Lease::Left. Thread-safe.
  std::optional<milliseconds> LeaseLeft(BootClock::time_point now) { return lease_.Left(now); }
  // Returns whether the front end has not renewed its lease for some heartbeats. This node then has
  // to send `alive` events, because no answer to a renewal shows that the node is alive. A front
  // end that has declared a node lost renews its lease again only after an event from it.
  bool IsUnasked(BootClock::time_point now) const;

  bool gone() const { return gone_; }
  bool detached() const { return detached_at_.has_value(); }
  std::optional<Clock::time_point> detached_at() const { return detached_at_; }
  // Returns whether the front end is connected, so that it can choose another host of the
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
  bool is_link_broken_ = false;  // true if the link is broken and may be resumed
  std::optional<Clock::time_point> stream_over_at_;
  std::optional<Clock::time_point> detached_at_;
};

}  // namespace dslaunch
