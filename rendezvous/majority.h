// Lets a rendezvous decide only while a majority of the job's nodes supports it, so that the two
// sides of a network partition never both continue. The caller passes the time.
//
// The rendezvous sends its own clock with each heartbeat, and each agent returns the newest value
// that it received. Thus the rendezvous knows a time at which a majority received its messages, and
// it sends the age of that time to every node. A node runs ranks for MajorityLease after that time
// and no longer. A node that leaves a rendezvous joins another one only after MajorityFence. Any
// two majorities share a node. When that node joins the second rendezvous, every lease of the first
// rendezvous has expired, so its ranks have ended.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "proto/job.pb.h"
#include "proto/rendezvous.pb.h"
#include "proto/wire/lease.h"

namespace dslaunch {

// Returns the number of nodes that form a majority of `nodes` nodes.
constexpr size_t MajorityOf(size_t nodes) { return nodes / 2 + 1; }

// Returns the time without messages after which a node counts as lost: dead_ms, measured from the
// time at which the next heartbeat was due. A network outage shorter than dead_ms may begin at any
// time after a heartbeat, so dead_ms alone would be too short.
inline milliseconds SilenceLimit(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.dead_ms() + timeouts.heartbeat_ms());
}

// Returns the time limit for all nodes to end their processes. It exceeds the nodes' own limits a
// little, so that the nodes can still report which processes they could not end.
inline milliseconds EmptyingLimit(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.grace_ms() + timeouts.teardown_ms() + timeouts.dead_ms());
}

// Returns the length of a lease. It exceeds SilenceLimit, so while a majority of nodes counts as
// present, its lease has not expired.
inline milliseconds MajorityLease(const pb::Timeouts& timeouts) {
  return milliseconds(2 * timeouts.dead_ms());
}

// Returns how long a node waits after leaving a rendezvous. After that time, no node has a lease of
// that rendezvous, or a rank that ran under such a lease. The time includes how much a process that
// could not run may add to a lease, one check of the lease, and the teardown.
inline milliseconds MajorityFence(const pb::Timeouts& timeouts) {
  return MajorityLease(timeouts) + Lease::kCatchUp + kStall +
         milliseconds(timeouts.heartbeat_ms() + timeouts.grace_ms() + timeouts.teardown_ms());
}

// Tracks the latest time at which a majority of the nodes received this rendezvous' messages, and
// the lease that begins at that time.
class Majority {
 public:
  using Time = BootClock::time_point;

  // Begins without a known majority. `voters` are nodes of the job without duplicates; any `needed`
  // of them form a majority.
  Majority(const std::vector<uint32_t>& voters, size_t num_nodes, size_t needed, milliseconds lease)
      : voters_(voters), needed_(needed), lease_(lease), heard_(num_nodes) {}

  // Sets the current time. Call this before each event.
  void SetTime(Time now) { now_ = now; }
  // Records the newest time of this process's clock that `node` returned in `heartbeat`. Adds this
  // clock and the age of the majority to `reply`.
  void OnHeartbeat(uint32_t node, const pb::Heartbeat& heartbeat, pb::Heartbeat& reply);
  // Records that `node` has received a message that this process sent at `sent_at`.
  void OnReceived(uint32_t node, Time sent_at, Time now) {
    if (node < heard_.size() && sent_at <= now)
      heard_[node] = std::max(heard_[node], std::optional(sent_at));
  }
  // Begins the first lease when all ranks are ready for the first time. This lease applies until a
  // majority is known, which happens only after the front end detaches.
  void OnAllReady() {
    if (!first_ready_at_) first_ready_at_ = now_;
  }

  // Updates the time that Since() returns. Call this at each tick, after SetTime().
  void OnTick();

  // Returns the latest time at which a majority is known to have been present; nullopt if there is
  // no such time yet.
  std::optional<Time> Since() const { return since_; }
  // Returns whether the voters for which `is_present` returns true are a majority.
  template <class Predicate>
  bool IsMetBy(Predicate is_present) const {
    return std::cmp_greater_equal(std::ranges::count_if(voters_, is_present), needed_);
  }
  // Returns whether a majority is known and its lease has not expired.
  bool IsLeaseValid() const { return since_ && !IsLeaseOver(); }
  // Returns whether the newest lease, or the first lease if no majority is known, has expired.
  bool IsLeaseOver() const {
    const std::optional<Time> since = since_ ? since_ : first_ready_at_;
    return since && now_ - *since >= lease_;
  }

 private:
  const std::vector<uint32_t> voters_;
  const size_t needed_;
  const milliseconds lease_;
  Time now_;
  // Newest time of this process's clock that each node received, indexed by node.
  std::vector<std::optional<Time>> heard_;
  std::vector<Time> times_;  // buffer that OnTick() reuses
  std::optional<Time> since_;
  std::optional<Time> first_ready_at_;
};

}  // namespace dslaunch
