// Formats the stacks of a job's ranks as text and as JSON. All functions are pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"

namespace dslaunch {

// The answer of a node to a request for stacks.
struct NodeStacks {
  std::string node;  // name of the node in the hostfile
  std::vector<pb::RankStacks> ranks;
  std::string trouble;  // reason why the node gave no answer; otherwise empty
};

// Returns a block for each group of ranks that are at the same place, with the threads of the first
// rank in the group. Adds a line for each node without an answer. The text is sanitized and has no
// final newline.
std::string StacksText(const std::vector<NodeStacks>& nodes);

// Returns a line for each group of ranks at the same place, such as "ranks 0-2, 4-15: all_reduce
// (...) < train (...), asleep in poll (...)". The text is sanitized and has no final newline.
std::string StacksSummary(const std::vector<NodeStacks>& nodes);

// Returns all stacks that were read as a JSON object, without a final newline.
std::string StacksJson(const std::string& job_id, const std::vector<NodeStacks>& nodes);

}  // namespace dslaunch
