// Encodes sets of node indices for messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/job.pb.h"

namespace dslaunch {

// Maximum number of a job's nodes. Indices from a peer that are not below this limit are ignored.
inline constexpr uint32_t kMaxNodesInSet = 1u << 20;

// Encodes a set of node indices. Precondition: `indexes` is ascending without duplicates.
inline pb::NodeSet ToNodeSet(const std::vector<uint32_t>& indexes) {
  pb::NodeSet set;
  for (size_t i = 0; i < indexes.size(); ++i) {
    const bool goes_on = i > 0 && indexes[i] == indexes[i - 1] + 1;
    if (!goes_on) {
      set.add_bounds(indexes[i]);
      set.add_bounds(indexes[i]);
    }
    set.set_bounds(set.bounds_size() - 1, indexes[i] + 1);
  }
  return set;
}

// Returns the indices in `set` that are below `num_nodes`, the number of nodes of the job, in
// ascending order.
inline std::vector<uint32_t> IndexesOf(const pb::NodeSet& set, size_t num_nodes = kMaxNodesInSet) {
  const auto end = static_cast<uint32_t>(std::min<size_t>(num_nodes, kMaxNodesInSet));
  std::vector<uint32_t> indexes;
  uint32_t next = 0;
  for (int i = 0; i + 1 < set.bounds_size(); i += 2) {
    next = std::max(next, set.bounds(i));
    for (; next < std::min(set.bounds(i + 1), end); ++next) indexes.push_back(next);
  }
  return indexes;
}

}  // namespace dslaunch
