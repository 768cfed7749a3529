// Which nodes share a relay.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace dslaunch {

// Up to so many nodes each has a link of its own, unless --fanout says otherwise.
inline constexpr size_t kMostFlatNodes = 512;

// How many nodes a relay reaches, itself included; 0: there are no relays. `asked` is --fanout's.
// By default the front end has as many links as a relay, the square root of the nodes.
// `has_two_groups`: two at least. Nodes whose connections all break take their front end for dead,
// and where one relay's machine is lost an attempt can begin on the nodes of the other.
inline size_t RelayFanout(size_t num_nodes, std::optional<int> asked, bool has_two_groups) {
  if (asked) {
    const auto fanout = static_cast<size_t>(*asked);
    return has_two_groups ? std::min(fanout, (num_nodes + 1) / 2) : fanout;
  }
  if (num_nodes <= kMostFlatNodes) return 0;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(num_nodes))));
}

// The relay's number, for `fanout` > 0: neighbours in the hostfile share one.
inline size_t RelayOf(size_t node, size_t fanout) { return node / fanout; }

}  // namespace dslaunch
