// Encodes the nodes of a job for messages. Each node gets the whole list, so nodes whose names
// differ only in a number are combined into one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// A list of nodes in hostfile order. A node's index is its position in the list. Copying takes time
// proportional to the number of runs.
class NodeTable {
 public:
  NodeTable() = default;
  // Decodes a list. Fails with kInternal for lists that PackNodes does not produce, and for lists
  // of more than kMaxNodesInSet nodes.
  static Result<NodeTable> Read(const pb::NodeList& list);

  uint32_t size() const { return size_; }
  // Returns the node at `index`. Precondition: `index` < size().
  pb::Node At(uint32_t index) const;
  uint32_t SlotsOf(uint32_t index) const { return RunOf(index).slots; }
  // Returns the number of slots of all nodes, at most UINT32_MAX.
  uint32_t num_slots() const { return num_slots_; }
  // Returns the number of slots of the nodes that are not spares, at most UINT32_MAX.
  uint32_t num_regular_slots() const { return num_regular_slots_; }
  std::vector<pb::Node> All() const;

 private:
  struct Run {
    uint32_t first = 0;  // index of the run's first node
    uint32_t count = 0;
    std::string before = {};  // text before the number in each name
    uint64_t number = 0;
    uint32_t digits = 0;  // minimum number of digits; 0 if the name has no number
    std::string after = {};
    uint32_t slots = 0;
    bool spare = false;

    std::string NameOf(uint32_t place) const;
  };

  friend pb::NodeList PackNodes(const std::vector<pb::Node>& nodes);

  static bool AppendName(const std::string& name, Run& run);
  const Run& RunOf(uint32_t index) const;

  std::vector<Run> runs_;
  uint32_t size_ = 0;
  uint32_t num_slots_ = 0;
  uint32_t num_regular_slots_ = 0;
};

// Encodes a list of nodes. Precondition: no name contains a zero byte.
pb::NodeList PackNodes(const std::vector<pb::Node>& nodes);

}  // namespace dslaunch
