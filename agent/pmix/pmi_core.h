// Implements a node's PMI-1 server, by which ranks of MPICH and compatible libraries (Intel MPI,
// MVAPICH) find each other: put, barrier and get. Uses no clock, threads or I/O.
//
// The protocol is MPICH's simple PMI, src/pmi; each message is a line "cmd=NAME KEY=VALUE ...". The
// only collective operation is a barrier of all ranks of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "proto/pmix.pb.h"

namespace dslaunch {

namespace pmi_action {

// An action that sends `line`, which includes its newline, to a rank.
struct Reply {
  uint32_t local_rank = 0;
  std::string line;
};
// An action that closes the connection to a rank that cannot continue. The rank's library then
// reports an error.
struct Close {
  uint32_t local_rank = 0;
};
// An action that enters a fence, because all ranks of this node wait in a barrier. `data` contains
// the values that these ranks have put since the last barrier. The result is passed to
// OnFenceEnd().
struct Fence {
  std::string data;
};
// An action that reports that a rank of the job has called MPI_Abort and waits to be killed.
struct Abort {
  uint32_t rank = 0;
  int code = 0;
};

}  // namespace pmi_action

using PmiAction =
    std::variant<pmi_action::Reply, pmi_action::Close, pmi_action::Fence, pmi_action::Abort>;
using PmiActions = std::vector<PmiAction>;

class PmiCore {
 public:
  // Limit of the size of a line. The longest line of a library has about 1,200 bytes.
  static constexpr size_t kMaxLineBytes = 4096;
  static constexpr size_t kMaxKeyBytes = 64;
  static constexpr size_t kMaxValueBytes = 1024;
  // Limit of the total size of the values that this node's ranks put.
  static constexpr size_t kMaxBytes = size_t{12} << 20;

  // Precondition: CheckPmixJob(job) succeeds.
  explicit PmiCore(const pb::PmixJob& job);

  uint32_t local_size() const { return static_cast<uint32_t>(ranks_.size()); }
  // Returns the rank's state by its calls of MPI_Init and MPI_Finalize.
  pb::PmixRank::State StateOf(uint32_t local_rank) const;

  // Handles a line from a rank of this node, without its newline. Fails with kBadInput if no
  // library sends such a line; the error is a sentence without the rank's name.
  Result<PmiActions> OnLine(uint32_t local_rank, std::string_view line);
  // Handles the end of a rank's connection. Barriers can no longer complete unless the rank had
  // finished, so they fail.
  PmiActions OnClosed(uint32_t local_rank);
  // Handles the end of the barrier. `data` contains the values that the ranks of all nodes have
  // put. `failure` is the reason if the barrier failed; empty on success.
  PmiActions OnFenceEnd(const std::string& data, const std::string& failure);

 private:
  struct Rank {
    bool has_begun = false;
    bool waits = false;  // whether the rank waits in the barrier
    bool has_ended = false;
    bool has_finalized = false;
    bool sends_spawn = false;  // whether the rank is sending a request of several lines
  };
  using Words = std::map<std::string, std::string, std::less<>>;

  std::string Put(const Words& words);
  std::string Get(const Words& words) const;
  PmiActions EnterBarrier(uint32_t local_rank);
  PmiActions BreakBarrier();

  const std::string name_;  // name of the job, as ranks get it
  const uint32_t first_rank_;
  uint32_t world_size_ = 0;
  std::string mapping_;      // value of kMappingKey: the nodes of the ranks
  std::vector<Rank> ranks_;  // ranks of this node, indexed by local rank
  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;   // total size of the values that this node's ranks have put
  pb::PmiValues new_;  // values that were not sent to other nodes yet
  // Whether a rank has exited without MPI_Finalize, so that no further barrier can complete.
  bool is_broken_ = false;
};

// Returns which ranks share a node, in the format of PMI_process_mapping:
// "(vector,(FIRST_NODE,NODES,RANKS),...)".
std::string PmiProcessMapping(const pb::PmixJob& job);

}  // namespace dslaunch
