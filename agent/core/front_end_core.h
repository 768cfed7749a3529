// A node's front end as the agent knows it: its lease, its connection, its event stream, and
// whether the job was detached from it.
#pragma once

#include <optional>
#include <string>

#include "agent/core/agent_outbox.h"
#include "agent/core/node_job.h"
#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/wire/lease.h"

namespace dslaunch {

// See AgentCore for what all parts have in common.
class FrontEndCore {
 public:
  // How far the readers of the events are.
  struct Readers {
    bool front_end_has_all = false;  // the front end was sent the last event
    bool has_viewers = false;        // some viewer was not sent the last event yet
  };

  // The first lease, of a front end that has not prepared anything yet, begins at `now`.
  FrontEndCore(const NodeJob& job, AgentOutbox& out, BootClock::time_point now);

  // Precondition: called before an event if the readers may have changed.
  void SetReaders(const Readers& readers) { readers_ = readers; }
  const Readers& readers() const { return readers_; }

  // Begins the lease of a prepared job.
  void OnPrepared() { SetLease(milliseconds(job_.timeouts().lease_ms())); }
  // The job no longer needs its front end. `socket_path`: where viewers attach.
  void OnDetach(const std::string& socket_path, Clock::time_point now);
  // The Run stream has ended or broken. Usually the supervisor then reports the front end's end; if
  // it reports nothing in time, the front end counts as gone.
  void OnStreamOver(Clock::time_point now);
  // The connection broke and may be resumed, or was resumed.
  void OnConnection(bool is_broken);
  // No front end can reach this node again: ends it if its connection is broken.
  void OnUnreachable() const;
  // The front end is gone, so this node's part ends unless all of it was reported.
  void OnGone();
  void OnSupervisorGone();
  // This node is empty and cut off from the other nodes, so it has nothing to wait for and takes a
  // shorter lease.
  void OnCutOff();
  void OnTick(Clock::time_point now, BootClock::time_point boot_now);

  // The front end renews its lease. Thread-safe.
  pb::RenewReply Renew(const pb::RenewRequest& request, BootClock::time_point now);
  // See Lease::Left. Thread-safe.
  std::optional<milliseconds> LeaseLeft(BootClock::time_point now) { return lease_.Left(now); }
  // The front end has not renewed its lease for some heartbeats, so this node has to send `alive`
  // events: there is no answer to a renewal that shows that the node lives. A front end that counts
  // a node as lost renews its lease again only after an event from it.
  bool IsUnasked(BootClock::time_point now) const;

  bool gone() const { return gone_; }
  bool detached() const { return detached_at_.has_value(); }
  std::optional<Clock::time_point> detached_at() const { return detached_at_; }
  // It is connected, so it can name another host of the rendezvous.
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
  bool is_link_broken_ = false;  // the broken link may be resumed
  std::optional<Clock::time_point> stream_over_at_;
  std::optional<Clock::time_point> detached_at_;
};

}  // namespace dslaunch
