// Plans which pairs of nodes measure the network between them.
#pragma once

#include <cstddef>
#include <vector>

namespace dslaunch {

struct NodePair {
  size_t serving = 0;    // index of the node that answers in the measurement
  size_t measuring = 0;  // index of the node that measures the network to `serving`
  bool operator==(const NodePair&) const = default;
};
// The pairs of a round, which measure at the same time; no node is in two pairs.
using PairRound = std::vector<NodePair>;

// Returns rounds in which each of `nodes` nodes is paired with two others. A healthy node thus has
// a healthy partner in one of the rounds unless both partners are bad. There are two rounds, and
// for an odd number of nodes a third round for the pair that is left over. Two nodes have one
// round; a single node has none.
std::vector<PairRound> PlanRounds(size_t nodes);

// Returns rounds that pair each suspect with a partner that is known to be good, which serves.
// Returns no rounds if there are no partners.
std::vector<PairRound> PlanConfirmation(const std::vector<size_t>& suspects,
                                        const std::vector<size_t>& partners);

}  // namespace dslaunch
