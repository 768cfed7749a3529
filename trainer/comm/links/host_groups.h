// Groups ranks by host, so that data for several ranks of a host is sent only once over the
// network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// Divides the ranks of a process group into consecutive parts, one for each host. All ranks form
// one part if there is only one host, or if no host has two ranks, because several parts would save
// nothing. They also form one part if the ranks of a host are not consecutive, because a sum over
// hosts would then not be in the order of the ranks.
class HostGroups {
 public:
  struct Part {
    size_t first = 0;  // first rank of the part
    size_t count = 0;
  };

  // Divides the ranks; `nodes` has, by rank, the node of each rank.
  explicit HostGroups(const std::vector<uint32_t>& nodes);

  size_t parts() const { return parts_.size(); }
  const Part& part(size_t index) const { return parts_[index]; }
  size_t PartOf(size_t rank) const { return part_of_[rank]; }

  // Returns the largest number of ranks in a part. Work is split into that many columns. In each
  // part one rank owns a column, and a rank of a smaller part may own several columns.
  size_t columns() const { return columns_; }
  size_t ColumnOf(size_t rank) const { return rank - parts_[part_of_[rank]].first; }
  size_t Owner(size_t part, size_t column) const {
    return parts_[part].first + column % parts_[part].count;
  }

  // Returns the other ranks of the part of `rank`, beginning with the ranks after `rank`.
  std::vector<size_t> NeighboursOf(size_t rank) const;

  // Returns the rank that sends the data of rank `from` to rank `to`. The data is sent only once to
  // each other host, where the owner of the column of `from` receives the data and forwards it to
  // the other ranks of its host.
  size_t SenderTo(size_t to, size_t from) const;
  // Returns the ranks to which rank `by` sends the data of rank `from`, beginning with the ranks on
  // the host of `by`. The data is routed as SenderTo describes.
  std::vector<size_t> ReceiversOf(size_t by, size_t from) const;

 private:
  bool Forwards(size_t rank, size_t from) const;

  std::vector<Part> parts_;
  std::vector<size_t> part_of_;
  size_t columns_ = 0;
};

}  // namespace dslaunch
