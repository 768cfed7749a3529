// Draws the job of one history (simulated run) from the seed: its nodes, times and policy.
#pragma once

#include <cstdint>
#include <vector>

#include "base/deadline.h"
#include "cli/plan/launch_plan.h"
#include "proto/agent.pb.h"
#include "tests/support/random_seed.h"

namespace dslaunch::sim {

// Limit on reconnections to nodes. Rejoining costs no restart, so max_restarts does not limit it.
inline constexpr int kMostReconnects = 6;

struct Job {
  pb::PrepareRequest prepare;   // request to the nodes, without the fields that differ between them
  std::vector<pb::Node> nodes;  // the nodes in `prepare`
  LaunchPlan plan;              // the same job as the front end plans it
  std::vector<uint32_t> absent;  // nodes that cannot be reached at the start
  int64_t shortest_rank_ms = 2'000;
  int64_t longest_rank_ms = 45'000;
  bool reports_steps = false;
  int64_t rank_fails_one_in = 4;  // one in this many pairs of node and attempt has a failing rank
  int64_t faults = 0;
  bool user_interrupts = false;
  bool detached = false;  // whether the job is detached once it runs
  int most_reconnects = kMostReconnects;
  int64_t join_timeout_ms = 0;  // join timeout, if the job has one command on each node
  // Time in ms after which the network between node 0 and all others is cut; -1 if it is never cut.
  // host_hears and host_is_heard name the directions that stay open.
  int64_t host_is_cut_at_ms = -1;
  bool host_hears = false;           // whether messages to node 0 still arrive
  bool host_is_heard = false;        // whether messages from node 0 still arrive
  bool host_sees_front_end = false;  // whether node 0 and the front end stay connected
  bool is_calm = false;  // whether ranks start in time and never fail, and the network is fast

  uint32_t size() const { return static_cast<uint32_t>(nodes.size()); }
  const pb::Node& node(uint32_t index) const { return nodes[index]; }
  const pb::Timeouts& timeouts() const { return prepare.job().timeouts(); }
  const pb::Policy& policy() const { return prepare.job().policy(); }

  // Returns the longest time from the end of the last rendezvous until every node has confirmed its
  // teardown.
  int64_t EmptyWithinMs() const;
  // Returns the longest time that a job may take, whatever fails.
  int64_t LongestMs() const;
};

Job DrawJob(Random& random);
// Draws a job that is detached from its front end, and that can elect another rendezvous.
Job DrawDetachedJob(Random& random);
// Draws a job of one command on each node.
Job DrawPerNodeJob(Random& random);
// Draws an elastic job in which the node with the rendezvous is cut off in one direction while the
// ranks run, and nothing else fails.
Job DrawHalfCutJob(Random& random, bool detached);

}  // namespace dslaunch::sim
