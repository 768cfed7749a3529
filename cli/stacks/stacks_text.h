// The stacks of a job's ranks as text and as JSON. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"

namespace dslaunch {

// The answer of one node.
struct NodeStacks {
  std::string node;  // name in the hostfile
  std::vector<pb::RankStacks> ranks;
  std::string trouble;  // why it gave no answer; else empty
};

// Returns a block for each group of ranks that are at the same place, which lists the threads of
// the first of them, and a line for each node without an answer, without a final newline.
// Sanitized.
std::string StacksText(const std::vector<NodeStacks>& nodes);

// Returns one line for each such group: "ranks 0-2, 4-15: all_reduce (...) < train (...), asleep in
// poll (...)", without a final newline. Sanitized.
std::string StacksSummary(const std::vector<NodeStacks>& nodes);

// Returns all that was read as one JSON object, without a final newline.
std::string StacksJson(const std::string& job_id, const std::vector<NodeStacks>& nodes);

}  // namespace dslaunch
