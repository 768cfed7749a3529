// Makes the options of a rendezvous from the node's PrepareRequest and, after a failover, from the
// state of the lost rendezvous.
#pragma once

#include <algorithm>
#include <vector>

#include "base/deadline.h"
#include "proto/agent.pb.h"
#include "proto/wire/node_list.h"
#include "rendezvous/coordinator.h"

namespace dslaunch {

// Returns the indexes of the nodes of which a majority must support the rendezvous
// (rendezvous/majority.h); empty if no majority is needed. A majority is needed if the job is
// detachable and may restart, and at least three nodes were present at the start. With three nodes,
// the job can continue without one of them. The result then contains all nodes that were present at
// the start.
inline std::vector<uint32_t> VotersOf(const pb::PrepareRequest& prepare, uint32_t num_nodes) {
  constexpr size_t kLeastVoters = 3;
  if (!prepare.job().detachable() || prepare.job().policy().max_restarts() == 0) return {};
  std::vector<uint32_t> voters;
  for (uint32_t node = 0; node < num_nodes; ++node) {
    if (std::ranges::count(prepare.absent_nodes(), node) == 0) voters.push_back(node);
  }
  if (voters.size() < kLeastVoters) voters.clear();
  return voters;
}

// Returns the options. If there was no earlier rendezvous, only absent_nodes of `last` is set.
// `age` is the time since the start of the job.
inline CoordinatorOptions RendezvousOptions(const pb::PrepareRequest& prepare,
                                            const NodeTable& nodes, const pb::FailoverRequest& last,
                                            milliseconds age = milliseconds(0)) {
  CoordinatorOptions options;
  options.job_id = prepare.job().job_id();
  options.nodes = nodes.All();
  options.timeouts = prepare.job().timeouts();
  options.age = age;
  options.policy = prepare.job().policy();
  options.may_share_machine = prepare.job().may_share_machine();
  options.rendezvous_node = prepare.node_index();
  options.absent_nodes.assign(last.absent_nodes().begin(), last.absent_nodes().end());
  options.attempt = last.attempt();
  options.restarts = last.restarts();
  options.attempt_ended_by = last.cause();
  options.voters = VotersOf(prepare, nodes.size());
  options.majority = MajorityOf(options.voters.size());
  return options;
}

}  // namespace dslaunch
