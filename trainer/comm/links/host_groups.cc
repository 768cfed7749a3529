#include "trainer/comm/links/host_groups.h"

#include <algorithm>
#include <set>

namespace dslaunch {

HostGroups::HostGroups(const std::vector<uint32_t>& nodes) : part_of_(nodes.size()) {
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (rank == 0 || nodes[rank] != nodes[rank - 1]) parts_.push_back({rank, 0});
    ++parts_.back().count;
  }
  const size_t hosts = std::set<uint32_t>(nodes.begin(), nodes.end()).size();
  if (parts_.size() != hosts || hosts == nodes.size()) parts_ = {{0, nodes.size()}};
  for (size_t part = 0; part < parts_.size(); ++part) {
    columns_ = std::max(columns_, parts_[part].count);
    for (size_t i = 0; i < parts_[part].count; ++i) part_of_[parts_[part].first + i] = part;
  }
}

}  // namespace dslaunch
