// The job of one history: its nodes, times and policy, drawn from the seed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/deadline.h"
#include "cli/plan/launch_plan.h"
#include "proto/agent.pb.h"
#include "tests/support/random_seed.h"

namespace dslaunch::sim {

// Limit for nodes that are reached again, because joining costs no restart.
inline constexpr int kMostReconnects = 6;

struct Job {
  pb::PrepareRequest prepare;  // request to the nodes, without the fields that differ between nodes
  std::vector<pb::Node> nodes;   // nodes of `prepare`
  LaunchPlan plan;               // the front end's view of the same
  std::vector<uint32_t> absent;  // cannot be reached at the start
  int64_t shortest_rank_ms = 2'000;
  int64_t longest_rank_ms = 45'000;
  bool reports_steps = false;
  int64_t rank_fails_one_in = 4;  // nodes and attempts
  int64_t faults = 0;
  bool user_interrupts = false;
  bool detached = false;  // once it runs
  int most_reconnects = kMostReconnects;
  int64_t join_timeout_ms = 0;  // join timeout of a job with one command on each node
  // From when on which directions of the network between node 0 and all others are cut; none: -1.
  int64_t host_is_cut_at_ms = -1;
  bool host_hears = false;
  bool host_is_heard = false;
  bool host_sees_front_end = false;  // in both directions, whatever is cut
  bool is_calm = false;  // ranks start in time and do as they should, and the network is fast

  uint32_t size() const { return static_cast<uint32_t>(nodes.size()); }
  const pb::Node& node(uint32_t index) const { return nodes[index]; }
  const pb::Timeouts& timeouts() const { return prepare.job().timeouts(); }
  const pb::Policy& policy() const { return prepare.job().policy(); }

  // Bound from the end of the last rendezvous until every node confirmed its teardown.
  int64_t EmptyWithinMs() const;
  // No job takes longer, whatever happens.
  int64_t LongestMs() const;
};

Job DrawJob(Random& random);
// One that leaves its front end, and that can elect another rendezvous.
Job DrawDetachedJob(Random& random);
// A job of one command on each node.
Job DrawPerNodeJob(Random& random);
// An elastic job whose node with the rendezvous is cut off in one direction while the ranks run,
// and in which nothing else fails.
Job DrawHalfCutJob(Random& random, bool detached);

}  // namespace dslaunch::sim
