// Decides which nodes form the job. The decisions are pure functions of (now, members, options),
// and each decision includes a reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/contract/rank_numbering.h"
#include "proto/job.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// A node that has joined the rendezvous.
struct Member {
  uint32_t node_index = 0;  // index of the node in hostfile order
  uint32_t slots = 0;
  std::string identity;  // opaque text, equal for two agents on the same machine
  // The rendezvous' address as this node sees it; empty on the rendezvous node.
  std::string reached_at;
  uint32_t master_port = 0;
  // This node's address on its connection to the rendezvous; empty on the rendezvous node.
  std::string address;
  uint32_t link_port = 0;  // port at which the node's agent accepts connections for its ranks
  std::string role = {};   // role of the node's ranks
};

struct QuorumOptions {
  std::vector<pb::Node> nodes;     // all nodes of the job
  bool may_share_machine = false;  // true to accept nodes with equal identities
  Clock::time_point join_deadline;
  uint32_t rendezvous_node = 0;     // node to which the other nodes connect
  uint32_t min_nodes = 0;           // smallest number of nodes with ranks (Policy.min_nodes)
  uint32_t max_nodes = 0;           // largest number of nodes with ranks (Policy.max_nodes)
  std::vector<uint32_t> absent;     // nodes that are not waited for but may still join
  std::vector<uint32_t> set_aside;  // nodes that failed too often to be used
  std::vector<uint32_t> unfit;      // nodes that failed their own check
};

struct QuorumDecision {
  enum class Verdict { kWait, kForm, kFail };
  Verdict verdict = Verdict::kWait;
  std::string reason;           // reason of the decision, for users; never empty
  pb::Cause cause;              // cause of the job's end; set for kFail
  std::vector<Member> members;  // nodes that get ranks, in hostfile order; set for kForm
};

// The smallest and largest number of nodes with ranks. A spare only replaces a missing node, so the
// maximum is the number of regular nodes, unless min_nodes is larger.
struct NodeBounds {
  uint32_t min = 0;
  uint32_t max = 0;
};

// Returns the bounds of a job with these nodes. A `min_nodes` of 0 stands for all regular nodes,
// which are the nodes that are not spares.
NodeBounds BoundsOf(const std::vector<pb::Node>& nodes, uint32_t min_nodes, uint32_t max_nodes);

// Returns the members that get ranks, in hostfile order. Selects them in this order:
// 1. regular nodes, in hostfile order, up to the maximum;
// 2. spares, in hostfile order, up to the maximum;
// 3. nodes set aside, up to the minimum;
// 4. unfit nodes, up to the minimum.
std::vector<Member> PickMembers(const std::vector<Member>& members, const QuorumOptions& options);

// Decides whether to form the job, wait or fail. Fails at once if two members have the same
// identity, unless options.may_share_machine is set. Forms the job once all expected nodes have
// joined: all nodes that are neither spare nor absent, and spares while there is room for them.
// Until options.join_deadline, waits for the expected nodes. At the deadline, forms the job if at
// least the minimum of nodes can get ranks, and fails otherwise. Precondition: `members` contains
// each node index at most once.
QuorumDecision DecideQuorum(Clock::time_point now, const std::vector<Member>& members,
                            const QuorumOptions& options);

// The range of a node's ranks among all ranks of the same role.
struct RolePlace {
  uint32_t first_rank = 0;
  uint32_t world_size = 0;
};

// The ranks of an attempt and the address of rank 0's store.
struct RankAssignment {
  RankNumbering ranks;
  std::string master_addr;  // address of rank 0's node, as the other nodes reach it
  uint32_t master_port = 0;
  uint32_t link_port = 0;        // link port of the first block's node
  std::vector<RolePlace> roles;  // positions of the ranks in their roles, indexed by node rank
};

// Returns the ranks of a node as a message. The caller sets rank 0's address and port and the
// number of restarts.
pb::Assignment AssignmentOf(const RankNumbering& ranks, const RankBlock& block);

// Returns for each member the range of its ranks among its role. Precondition: `members` are sorted
// by rank.
std::vector<RolePlace> PlacesInRoles(const std::vector<Member>& members);

// Returns the ranks of `members`, assigned in hostfile order, whatever the order of joining.
// Precondition: `members` is not empty.
RankAssignment AssignRanks(std::vector<Member> members);

}  // namespace dslaunch
