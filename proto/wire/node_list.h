// The nodes of a job on the wire. Each node gets the list of all, so the list is kept short: nodes
// whose names differ in a number only are one run, however many they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// In hostfile order; a node's index is its place. Copying it costs as much as it has runs.
class NodeTable {
 public:
  NodeTable() = default;
  // Refused, with kInternal: what PackNodes does not make, and more than kMaxNodesInSet.
  static Result<NodeTable> Read(const pb::NodeList& list);

  uint32_t size() const { return size_; }
  // `index` < size().
  pb::Node At(uint32_t index) const;
  uint32_t SlotsOf(uint32_t index) const { return RunOf(index).slots; }
  // Of all nodes; of those that are no spares. At most UINT32_MAX.
  uint32_t num_slots() const { return num_slots_; }
  uint32_t num_regular_slots() const { return num_regular_slots_; }
  std::vector<pb::Node> All() const;

 private:
  struct Run {
    uint32_t first = 0;  // index
    uint32_t count = 0;
    std::string before = {};  // the number
    uint64_t number = 0;
    uint32_t digits = 0;  // 0: there is no number
    std::string after = {};
    uint32_t slots = 0;
    bool spare = false;

    std::string NameOf(uint32_t place) const;
  };

  friend pb::NodeList PackNodes(const std::vector<pb::Node>& nodes);

  static bool TakeIn(const std::string& name, Run& run);
  const Run& RunOf(uint32_t index) const;

  std::vector<Run> runs_;
  uint32_t size_ = 0;
  uint32_t num_slots_ = 0;
  uint32_t num_regular_slots_ = 0;
};

// No name has a zero byte in it.
pb::NodeList PackNodes(const std::vector<pb::Node>& nodes);

}  // namespace dslaunch
