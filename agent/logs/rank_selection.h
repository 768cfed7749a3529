// Selects ranks and streams whose output a receiver gets.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

struct RankSelection {
  RankSelection() = default;  // selects no output
  explicit RankSelection(const pb::RankChoice& choice);

  bool all = false;
  std::vector<uint32_t> ranks;  // ranks to select; not used if `all` is set
  // Local ranks to which the selection is restricted; empty for no restriction.
  std::vector<uint32_t> local_ranks;
  // Streams to omit for some local ranks: 1 for stdout, 2 for stderr, 3 for both.
  std::map<uint32_t, uint32_t> left_out_of;
  // Streams to omit for the local ranks that are not in `left_out_of`.
  uint32_t left_out = 0;

  // Returns whether this stream of a rank is selected.
  bool Has(uint32_t rank, uint32_t local_rank, bool is_stderr) const;
};

}  // namespace dslaunch
