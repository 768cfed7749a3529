// Who forms the job: pure decisions of (now, members, options), each with its reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/deadline.h"
#include "proto/job.pb.h"

namespace dslaunch {

// A node that has joined.
struct Member {
  uint32_t node_index = 0;  // in hostfile order
  uint32_t slots = 0;
  std::string identity;    // opaque; equal for two agents of one machine
  std::string reached_at;  // the rendezvous' address as this node sees it; empty on the rendezvous'
                           // own node
  uint32_t master_port = 0;
};

struct QuorumOptions {
  std::vector<pb::Node> nodes;  // all that are expected
  bool one_machine = false;     // --launcher local: equal identities are no error
  Clock::time_point join_deadline;
};

struct QuorumDecision {
  enum class Verdict { kWait, kForm, kFail };
  Verdict verdict = Verdict::kWait;
  std::string reason;  // always given; for a person
  pb::Cause cause;     // when kFail
};

// `members` has each node index at most once.
QuorumDecision DecideQuorum(Clock::time_point now, const std::vector<Member>& members,
                            const QuorumOptions& options);

// A node's place in the job.
struct RankBlock {
  uint32_t node_index = 0;
  uint32_t node_rank = 0;
  uint32_t first_rank = 0;
  uint32_t slots = 0;
};

struct RankAssignment {
  std::vector<RankBlock> blocks;  // in hostfile order
  uint32_t world_size = 0;
  std::string master_addr;  // of the first block's node, as the others reach it
  uint32_t master_port = 0;
};

// Ranks follow hostfile order, whatever the order of joining. `members` is not empty.
RankAssignment AssignRanks(std::vector<Member> members);

}  // namespace dslaunch
