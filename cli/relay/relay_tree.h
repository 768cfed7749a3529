// Decides how nodes are divided among relays.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace dslaunch {

// The largest number of nodes that are reached without relays, by a link each, unless --fanout is
// given.
inline constexpr size_t kMostFlatNodes = 512;

// Returns the number of nodes that a relay reaches, including its own; 0 to use no relays. `asked`
// is the value of --fanout. The default is the square root of the number of nodes, so that the
// front end has as many links as a relay. `has_two_groups` requires at least two groups. Nodes
// assume that the front end is dead if the connections of all nodes break. With two groups, the
// nodes of one group remain connected when the other relay's machine is lost, so another attempt
// can begin on them.
inline size_t RelayFanout(size_t num_nodes, std::optional<int> asked, bool has_two_groups) {
  if (asked) {
    const auto fanout = static_cast<size_t>(*asked);
    return has_two_groups ? std::min(fanout, (num_nodes + 1) / 2) : fanout;
  }
  if (num_nodes <= kMostFlatNodes) return 0;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(num_nodes))));
}

// Returns the index of the node's relay. Neighbours in the hostfile share a relay. Precondition:
// `fanout` is not 0.
inline size_t RelayOf(size_t node, size_t fanout) { return node / fanout; }

}  // namespace dslaunch
