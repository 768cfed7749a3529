// Which pairs of nodes measure the network between them.
#pragma once

#include <cstddef>
#include <vector>

namespace dslaunch {

struct NodePair {
  size_t serving = 0;    // index of the node
  size_t measuring = 0;  // likewise
  bool operator==(const NodePair&) const = default;
};
// The pairs of a round measure at the same time; no node is in two of them.
using PairRound = std::vector<NodePair>;

// Returns rounds in which every one of `nodes` nodes is paired with two others, so that a healthy
// node has a healthy partner in one of them unless both partners are bad: two rounds, and for an
// odd number a third one for the pair that is left over. Two nodes have one round; one has none.
std::vector<PairRound> PlanRounds(size_t nodes);

// Returns rounds that pair each suspect with a partner that is known to be good, which serves.
// Empty if there are no partners.
std::vector<PairRound> PlanConfirmation(const std::vector<size_t>& suspects,
                                        const std::vector<size_t>& partners);

}  // namespace dslaunch
