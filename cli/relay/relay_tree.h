// Assigns nodes to relays.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace dslaunch {

// The maximum number of nodes that are reached by one link each, without relays, unless --fanout is
// given.
inline constexpr size_t kMostFlatNodes = 512;

// Returns how many nodes a relay reaches, including its own; 0 if there are no relays. `asked` is
// --fanout's value. By default it is the square root of the number of nodes, so the front end has
// as many links as a relay. `has_two_groups` requires at least two groups: nodes whose connections
// all break assume that the front end is dead, but if one relay's machine is lost, an attempt can
// begin on the nodes of the other.
inline size_t RelayFanout(size_t num_nodes, std::optional<int> asked, bool has_two_groups) {
  if (asked) {
    const auto fanout = static_cast<size_t>(*asked);
    return has_two_groups ? std::min(fanout, (num_nodes + 1) / 2) : fanout;
  }
  if (num_nodes <= kMostFlatNodes) return 0;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(num_nodes))));
}

// Returns the index of the node's relay; `fanout` must be above 0. Neighbours in the hostfile share
// a relay.
inline size_t RelayOf(size_t node, size_t fanout) { return node / fanout; }

}  // namespace dslaunch
