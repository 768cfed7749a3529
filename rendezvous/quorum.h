// Decides which nodes form the job. Pure decisions of (now, members, options), each with its
// reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "proto/contract/rank_numbering.h"
#include "proto/job.pb.h"
#include "proto/rendezvous.pb.h"

namespace dslaunch {

// A node that has joined.
struct Member {
  uint32_t node_index = 0;  // in hostfile order
  uint32_t slots = 0;
  std::string identity;    // opaque; equal for two agents of one machine
  std::string reached_at;  // the rendezvous' address as this node sees it; empty on the rendezvous'
                           // own node
  uint32_t master_port = 0;
  std::string address;     // of this node, as it reaches the rendezvous; empty on its own node
  uint32_t link_port = 0;  // where its agent takes connections for its ranks
  std::string role = {};   // of its ranks
};

struct QuorumOptions {
  std::vector<pb::Node> nodes;     // the job's
  bool may_share_machine = false;  // equal identities are no error
  Clock::time_point join_deadline;
  uint32_t rendezvous_node = 0;     // the node that the others connect to
  uint32_t min_nodes = 0;           // as in Policy
  uint32_t max_nodes = 0;           // as in Policy
  std::vector<uint32_t> absent;     // not waited for; they may still join
  std::vector<uint32_t> set_aside;  // failed often
};

struct QuorumDecision {
  enum class Verdict { kWait, kForm, kFail };
  Verdict verdict = Verdict::kWait;
  std::string reason;           // always given; for a person
  pb::Cause cause;              // when kFail
  std::vector<Member> members;  // when kForm: who gets ranks, in hostfile order
};

// The least and the greatest number of nodes with ranks. A spare only stands in for a node that is
// missing, so that there are never more than the nodes that are no spares unless min_nodes demands
// it.
struct NodeBounds {
  uint32_t min = 0;
  uint32_t max = 0;
};
NodeBounds BoundsOf(const std::vector<pb::Node>& nodes, uint32_t min_nodes, uint32_t max_nodes);

// Who of `members` gets ranks, in hostfile order:
// 1. nodes that are no spares, in hostfile order, up to the most that may;
// 2. spares, in hostfile order, as long as fewer than that have got ranks;
// 3. nodes set aside, as long as fewer than the least have got ranks.
std::vector<Member> PickMembers(const std::vector<Member>& members, const QuorumOptions& options);

// Forms as soon as everybody who is expected has joined: all nodes that are neither spare nor
// absent, and spares too while there is room for them. At the deadline it forms with the members
// that have joined, if they are enough. `members` has each node index at most once.
QuorumDecision DecideQuorum(Clock::time_point now, const std::vector<Member>& members,
                            const QuorumOptions& options);

// The place of a node's ranks among all that have the same role.
struct RolePlace {
  uint32_t first_rank = 0;
  uint32_t world_size = 0;
};

// The ranks of an attempt, and the address of rank 0's store.
struct RankAssignment {
  RankNumbering ranks;
  std::string master_addr;  // of the first block's node, as the others reach it
  uint32_t master_port = 0;
  uint32_t link_port = 0;        // of the first block's node
  std::vector<RolePlace> roles;  // by node rank
};

// One node's assignment, without rank 0's address and port and the number of restarts.
pb::Assignment AssignmentOf(const RankNumbering& ranks, const RankBlock& block);

// Returns the places of `members`, which are in the order of their ranks.
std::vector<RolePlace> PlacesInRoles(const std::vector<Member>& members);

// Ranks follow hostfile order, whatever the order of joining. `members` is not empty.
RankAssignment AssignRanks(std::vector<Member> members);

}  // namespace dslaunch
