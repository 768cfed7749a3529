#include "tests/sim/invariants.h"

#include <algorithm>
#include <utility>

namespace dslaunch::sim {

void Invariants::OnStart(uint64_t attempt, uint32_t rank, uint32_t world_size, uint32_t node,
                         size_t incarnation) {
  for (const Owner& owner : owners_) {
    if (owner.attempt == attempt && owner.rank == rank) {
      Fail("rank " + std::to_string(rank) + " of attempt " + std::to_string(attempt) +
           (owner.runs ? " has two owners: " : " was started twice: on ") + Name(owner.node) +
           " and " + Name(node));
    }
    if (owner.incarnation == incarnation && owner.runs && owner.attempt != attempt && !owner.left) {
      Fail(Name(node) + " runs ranks of attempt " + std::to_string(owner.attempt) +
           " and starts some of " + std::to_string(attempt));
    }
  }
  if (attempt < elected_from_) {
    Fail(Name(node) + " starts ranks of attempt " + std::to_string(attempt) +
         ", but a majority has gone on with attempt " + std::to_string(elected_from_));
  }
  if (rank >= world_size) Fail("a rank beyond the world");
  owners_.push_back({attempt, rank, world_size, node, incarnation, true, false});
  newest_ = std::max(newest_, attempt);
}

void Invariants::OnRankFailed(uint64_t attempt, uint32_t node) { failed_.insert({attempt, node}); }

void Invariants::OnRanksFinished(uint64_t attempt, uint32_t node) {
  finished_.insert({attempt, node});
}

void Invariants::OnGracefulKill(uint32_t node, int64_t lease_ends_by) {
  if (now_() > lease_ends_by)
    Fail(Name(node) + " has run its ranks until now, but its lease was over at " +
         std::to_string(lease_ends_by) + " ms");
}

void Invariants::OnEmpty(size_t incarnation, bool left) {
  for (Owner& owner : owners_) {
    if (owner.incarnation != incarnation || !owner.runs) continue;
    owner.runs = owner.left = left;
  }
}

void Invariants::OnSaidEmpty(uint64_t attempt, uint32_t node, size_t incarnation) {
  for (const Owner& owner : owners_) {
    if (owner.incarnation == incarnation && owner.runs && !owner.left && owner.attempt <= attempt) {
      Fail(Name(node) + " says that it is empty, but still runs ranks of attempt " +
           std::to_string(owner.attempt));
    }
  }
}

void Invariants::OnFormed(uint64_t attempt,
                          const std::vector<std::pair<uint32_t, pb::Assignment>>& assignments) {
  uint32_t next_rank = 0;
  int64_t last_node = -1;
  for (const auto& [node, assignment] : assignments) {
    if (assignment.first_rank() != next_rank || node <= last_node)
      Fail("ranks of attempt " + std::to_string(attempt) + " do not follow hostfile order");
    last_node = node;
    next_rank += job_.node(node).slots();
    if (assignment.master_addr().empty()) Fail("no MASTER_ADDR");
  }
  if (next_rank == 0) Fail("an attempt without ranks");
}

void Invariants::OnFormedAfterFailover(uint64_t attempt, uint32_t lost_node) {
  for (const Owner& owner : owners_) {
    // Newer attempts are not checked, because another rendezvous may have begun one in the
    // meantime, which this rendezvous cannot detect.
    if (owner.runs && !owner.left && owner.node == lost_node && owner.attempt < attempt) {
      Fail("attempt " + std::to_string(attempt) + " begins without " + Name(lost_node) +
           ", which decided before and still runs ranks of attempt " +
           std::to_string(owner.attempt));
    }
  }
}

void Invariants::OnFormedAfterElection(uint64_t attempt) {
  elected_from_ = std::max(elected_from_, attempt);
  for (const Owner& owner : owners_) {
    if (owner.runs && !owner.left && owner.attempt < attempt) {
      Fail("attempt " + std::to_string(attempt) + " begins, but " + Name(owner.node) +
           " still runs ranks of attempt " + std::to_string(owner.attempt));
    }
  }
}

void Invariants::OnCause(const pb::Cause& cause) {
  if (cause.kind() != pb::Cause::NONE && cause.rank() < 0 && cause.message().empty())
    Fail("a cause without a sentence: " + cause.ShortDebugString());
}

void Invariants::OnDecidedSuccess(uint64_t attempt) {
  if (std::exchange(decided_, attempt) == attempt) return;  // every node receives the decision
  for (const Owner& owner : owners_) {
    if (owner.attempt != attempt) continue;
    if (!finished_.contains({attempt, owner.node}))
      Fail("the rendezvous decided success, but " + Name(owner.node) + " has not finished");
  }
}

void Invariants::OnExit(const JobEnd& end) {
  OnCause(end.cause);
  if (end.exit_code == 0) CheckSuccess(end);
}

void Invariants::CheckSuccess(const JobEnd& end) {
  if (end.members.empty()) Fail("success of nobody");
  uint32_t ranks = 0;
  uint32_t world_size = 0;
  for (const Owner& owner : owners_) {
    if (owner.attempt != newest_) continue;
    ++ranks;
    world_size = owner.world_size;
    const Part part = {owner.attempt, owner.node};
    if (owner.runs) Fail("exit code 0, but " + Name(owner.node) + " is not empty");
    if (failed_.contains(part)) Fail("exit code 0, but a rank of " + Name(owner.node) + " failed");
    if (!finished_.contains(part))
      Fail("exit code 0, but " + Name(owner.node) + " has not finished");
  }
  if (ranks == 0 || ranks != world_size) Fail("exit code 0, but not all ranks were started");
}

void Invariants::OnQuiet() {
  for (const Owner& owner : owners_) {
    if (owner.runs && !owner.left) {
      Fail("all is over, but rank " + std::to_string(owner.rank) + " of attempt " +
           std::to_string(owner.attempt) + " still runs on " + Name(owner.node));
    }
  }
}

void Invariants::Fail(const std::string& what) {
  if (error_.empty()) error_ = "at " + std::to_string(now_()) + " ms: " + what;
}

}  // namespace dslaunch::sim
