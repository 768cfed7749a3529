// Which nodes share a relay.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>

namespace dslaunch {

// Up to so many nodes each has a link of its own, unless --fanout says otherwise.
inline constexpr size_t kMostFlatNodes = 512;

// How many nodes a relay reaches, itself included; 0: there are no relays. `asked` is --fanout's.
// By default the front end has as many links as a relay, the square root of the nodes.
inline size_t RelayFanout(size_t num_nodes, std::optional<int> asked) {
  if (asked) return static_cast<size_t>(*asked);
  if (num_nodes <= kMostFlatNodes) return 0;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(num_nodes))));
}

// The relay's number, for `fanout` > 0: neighbours in the hostfile share one.
inline size_t RelayOf(size_t node, size_t fanout) { return node / fanout; }

}  // namespace dslaunch
