// A node's server of PMI-1, by which ranks of MPICH and its kin (Intel MPI, MVAPICH) find each
// other: what is put, the barrier, what is got. Pure: no clock, no threads, no I/O.
//
// Source of the protocol: MPICH's simple PMI, src/pmi; each message is a line "cmd=NAME KEY=VALUE
// ...". A barrier is the only meeting, and is one of all ranks of the job.
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

// `line` with its end.
struct Reply {
  uint32_t local_rank = 0;
  std::string line;
};
// The connection to that rank ends: it cannot go on, and its library says so.
struct Close {
  uint32_t local_rank = 0;
};
// All ranks of this node wait in a barrier. `data`: what they have put since the last one. Answer:
// OnFenceEnd.
struct Fence {
  std::string data;
};
// That rank, of the job, has called MPI_Abort and waits to be killed.
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
  static constexpr size_t kMaxLineBytes = 4096;  // a library's longest is about 1,200
  static constexpr size_t kMaxKeyBytes = 64;
  static constexpr size_t kMaxValueBytes = 1024;
  static constexpr size_t kMaxBytes = size_t{12} << 20;  // that this node's ranks put

  // `job` as CheckPmixJob takes it.
  explicit PmiCore(const pb::PmixJob& job);

  uint32_t local_size() const { return static_cast<uint32_t>(ranks_.size()); }
  pb::PmixRank::State StateOf(uint32_t local_rank) const;

  // `line` of a rank of this node, without its end. Error kBadInput, a sentence without a name: no
  // library sends this.
  Result<PmiActions> OnLine(uint32_t local_rank, std::string_view line);
  // That rank's connection has ended.
  PmiActions OnClosed(uint32_t local_rank);
  // The barrier has ended. `data`: what the ranks of all nodes have put; `failure`: empty, or why
  // there is none.
  PmiActions OnFenceEnd(const std::string& data, const std::string& failure);

 private:
  struct Rank {
    bool has_begun = false;
    bool waits = false;  // in the barrier
    bool has_ended = false;
    bool has_finalized = false;
    bool sends_spawn = false;  // a request of several lines
  };
  using Words = std::map<std::string, std::string, std::less<>>;

  std::string Put(const Words& words);
  std::string Get(const Words& words) const;
  PmiActions EnterBarrier(uint32_t local_rank);
  PmiActions BreakBarrier();

  const std::string name_;  // of the job
  const uint32_t first_rank_;
  uint32_t world_size_ = 0;
  std::string mapping_;      // which ranks share a node
  std::vector<Rank> ranks_;  // of this node
  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;        // of `values_` that this node's ranks have put
  pb::PmiValues new_;       // of them what other nodes have not got
  bool is_broken_ = false;  // a rank is gone without MPI_Finalize: no barrier ends any more
};

// Which ranks share a node, as PMI_process_mapping says it:
// "(vector,(FIRST_NODE,NODES,RANKS),...)".
std::string PmiProcessMapping(const pb::PmixJob& job);

}  // namespace dslaunch
