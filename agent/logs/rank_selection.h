// Selects some of the output of a job's ranks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/agent.pb.h"

namespace dslaunch {

struct RankSelection {
  RankSelection() = default;  // selects nothing
  explicit RankSelection(const pb::RankChoice& choice);

  bool all = false;
  std::vector<uint32_t> ranks;  // unused if `all` is set
  // Restricts `ranks` to these local ranks, unless empty.
  std::vector<uint32_t> local_ranks;
  // Omitted streams by local rank, and for all other local ranks, as in pb::RankChoice.
  std::map<uint32_t, uint32_t> left_out_of;
  uint32_t left_out = 0;

  bool Has(uint32_t rank, uint32_t local_rank, bool is_stderr) const;
};

}  // namespace dslaunch
