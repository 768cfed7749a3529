// A rendezvous that decides only while a majority of the job's nodes stands behind it, so that two
// halves of a cut network never both go on. Pure: time comes in.
//
// The rendezvous says its own clock with each heartbeat, and each agent sends back the newest that
// it has heard. So the rendezvous knows since when at the latest a majority has heard it, and tells
// every node how long ago that was. A node runs ranks for MajorityLease after that and no longer. A
// node that leaves a rendezvous joins another one only after MajorityFence. Any two majorities have
// a node in common. When that node joins the second rendezvous, every lease of the first one has
// ended, and so have its ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "proto/job.pb.h"
#include "proto/wire/lease.h"

namespace dslaunch {

// Of so many nodes.
constexpr size_t MajorityOf(size_t nodes) { return nodes / 2 + 1; }

// For how long a node is silent until it counts as lost: dead_ms from when its next heartbeat was
// due. A cut that is shorter than dead_ms may begin at any time after a heartbeat.
inline milliseconds SilenceLimit(const pb::Timeouts& timeouts) {
  return milliseconds(timeouts.dead_ms() + timeouts.heartbeat_ms());
}

// Longer than a node may be silent before it counts as lost: a majority that counts as present
// never is too old.
inline milliseconds MajorityLease(const pb::Timeouts& timeouts) {
  return milliseconds(2 * timeouts.dead_ms());
}

// From when a node has left a rendezvous until no lease of it is left anywhere, and no rank that
// ran under one: what a process that could not run may add to a lease, one look at it, and the
// teardown.
inline milliseconds MajorityFence(const pb::Timeouts& timeouts) {
  return MajorityLease(timeouts) + Lease::kCatchUp + kStall +
         milliseconds(timeouts.heartbeat_ms() + timeouts.grace_ms() + timeouts.teardown_ms());
}

// Since when a majority of the nodes has heard this rendezvous.
class Majority {
 public:
  using Time = BootClock::time_point;

  // `voters`: nodes of the job, each once. `needed` of them are a majority.
  Majority(const std::vector<uint32_t>& voters, size_t num_nodes, size_t needed);

  // `node` has heard what was said here at `said_at`.
  void OnHeard(uint32_t node, Time said_at, Time now);
  // To be called as time passes: Since() is as of the newest call.
  void OnTick();
  // At this time a majority was there. nullopt: there was none yet.
  std::optional<Time> Since() const { return since_; }

 private:
  const std::vector<uint32_t> voters_;
  const size_t needed_;
  std::vector<std::optional<Time>> heard_;  // by node, the newest
  std::vector<Time> times_;                 // of OnTick alone
  std::optional<Time> since_;
};

}  // namespace dslaunch
