// Which ranks of a group share a host, so that what they have in common crosses the network once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslaunch {

// The ranks of a process group in parts that follow one another: one part for each host. All ranks
// are one part where hosts bring nothing: there is one host, no host has two ranks, or the ranks of
// a host do not follow one another, so that a sum in the order of the ranks is none over hosts.
class HostGroups {
 public:
  struct Part {
    size_t first = 0;  // rank
    size_t count = 0;
  };

  // `nodes`: the node of each rank, by rank.
  explicit HostGroups(const std::vector<uint32_t>& nodes);

  size_t parts() const { return parts_.size(); }
  const Part& part(size_t index) const { return parts_[index]; }
  size_t PartOf(size_t rank) const { return part_of_[rank]; }

  // The most ranks of a part. Work is split into that many columns; one rank of each part has a
  // column, and a rank of a smaller part may have several.
  size_t columns() const { return columns_; }
  size_t ColumnOf(size_t rank) const { return rank - parts_[part_of_[rank]].first; }
  size_t Owner(size_t part, size_t column) const {
    return parts_[part].first + column % parts_[part].count;
  }

  // The other ranks of rank's part, those that follow it first.
  std::vector<size_t> NeighboursOf(size_t rank) const;

  // What rank `from` has reaches all ranks, and each other host once: the rank there that owns
  // from's column gets it and forwards it to the others of its host. Who sends it to rank `to`;
  // and to whom rank `by` sends it, with the ranks of its own host first.
  size_t SenderTo(size_t to, size_t from) const;
  std::vector<size_t> ReceiversOf(size_t by, size_t from) const;

 private:
  bool Forwards(size_t rank, size_t from) const;

  std::vector<Part> parts_;
  std::vector<size_t> part_of_;
  size_t columns_ = 0;
};

}  // namespace dslaunch
