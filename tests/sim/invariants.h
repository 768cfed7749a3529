// Checks the invariants of every history (simulated run of a job), whatever fails. The checks use
// the true state of the nodes; the first violation is kept. Each quotation below is one invariant.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/core/outcome.h"
#include "proto/rendezvous.pb.h"
#include "tests/sim/job.h"

namespace dslaunch::sim {

class Invariants {
 public:
  Invariants(const Job& job, std::function<int64_t()> now) : job_(job), now_(std::move(now)) {}

  // Checks "a rank of an attempt is started once, on one node". `incarnation` is the supervisor
  // that started the rank.
  void OnStart(uint64_t attempt, uint32_t rank, uint32_t world_size, uint32_t node,
               size_t incarnation);
  void OnRankFailed(uint64_t attempt, uint32_t node);
  void OnRanksFinished(uint64_t attempt, uint32_t node);
  // Checks "a node without contact to its front end ends its ranks", by `lease_ends_by` at the
  // latest.
  void OnGracefulKill(uint32_t node, int64_t lease_ends_by);
  // Records that the supervisor of `incarnation` has ended or lost the processes that it started.
  // `left` is whether processes that cannot be killed still run; the node reports these.
  void OnEmpty(size_t incarnation, bool left);

  // Checks "a node reports that it has drained, or is torn down, only when none of its ranks runs".
  // Counts ranks up to `attempt`, except processes that cannot be killed.
  void OnSaidEmpty(uint64_t attempt, uint32_t node, size_t incarnation);

  // Checks "ranks of an attempt follow hostfile order and have an address to meet at".
  void OnFormed(uint64_t attempt,
                const std::vector<std::pair<uint32_t, pb::Assignment>>& assignments);
  // Checks "a rendezvous gives ranks once its lost predecessor's node has none". Otherwise two
  // halves of a job would overwrite each other's files.
  void OnFormedAfterFailover(uint64_t attempt, uint32_t lost_node);
  // Checks "an elected rendezvous gives ranks once no node has any". From then on, no older attempt
  // may begin, so that two halves of a cut network never both continue.
  void OnFormedAfterElection(uint64_t attempt);
  // Checks "whatever ends an attempt or a job has a message for the user".
  void OnCause(const pb::Cause& cause);

  // Checks "the rendezvous decides success only when every node with ranks has finished". The front
  // end checks the same, so a violation would not change the exit code.
  void OnDecidedSuccess(uint64_t attempt);

  // Checks "exit code 0 means that every rank of the final attempt succeeded and its nodes are
  // empty".
  void OnExit(const JobEnd& end);
  // Checks "after the end of a job, none of its processes runs".
  void OnQuiet();
  // Records a violation of "every job ends in a bounded time", or of a rule that is checked
  // elsewhere.
  void Fail(const std::string& what);

  uint64_t attempts() const { return newest_; }
  const std::string& error() const { return error_; }

 private:
  struct Owner {
    uint64_t attempt;
    uint32_t rank;
    uint32_t world_size;
    uint32_t node;
    size_t incarnation;
    bool runs;
    bool left;
  };
  struct Part {  // the ranks of one node in one attempt
    uint64_t attempt;
    uint32_t node;
    auto operator<=>(const Part&) const = default;
  };

  std::string Name(uint32_t node) const { return job_.node(node).name(); }
  void CheckSuccess(const JobEnd& end);

  const Job& job_;
  const std::function<int64_t()> now_;
  std::vector<Owner> owners_;
  std::set<Part> failed_;
  std::set<Part> finished_;
  uint64_t decided_ = 0;  // latest attempt for which success was decided
  uint64_t newest_ = 0;
  uint64_t elected_from_ = 0;  // newest attempt that began with an elected rendezvous
  std::string error_;
};

}  // namespace dslaunch::sim
