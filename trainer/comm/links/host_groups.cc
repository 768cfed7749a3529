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

std::vector<size_t> HostGroups::NeighboursOf(size_t rank) const {
  const Part& own = parts_[PartOf(rank)];
  std::vector<size_t> neighbours;
  for (size_t i = 1; i < own.count; ++i)
    neighbours.push_back(own.first + (rank - own.first + i) % own.count);
  return neighbours;
}

bool HostGroups::Forwards(size_t rank, size_t from) const {
  const size_t part = PartOf(rank);
  return part != PartOf(from) && Owner(part, ColumnOf(from)) == rank;
}

size_t HostGroups::SenderTo(size_t to, size_t from) const {
  const size_t part = PartOf(to);
  return part == PartOf(from) || Forwards(to, from) ? from : Owner(part, ColumnOf(from));
}

std::vector<size_t> HostGroups::ReceiversOf(size_t by, size_t from) const {
  if (by != from && !Forwards(by, from)) return {};
  std::vector<size_t> receivers = NeighboursOf(by);
  if (by != from) return receivers;
  for (size_t i = 1; i < parts(); ++i)
    receivers.push_back(Owner((PartOf(by) + i) % parts(), ColumnOf(from)));
  return receivers;
}

}  // namespace dslaunch
