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
// By default the front end has as many links as a relay, the square root of the nodes. A job that
// may restart has two groups at least: the nodes of a lost relay are lost, and with them all an
// attempt could begin on.
inline size_t RelayFanout(size_t num_nodes, std::optional<int> asked, bool may_restart) {
  if (asked) {
    const auto fanout = static_cast<size_t>(*asked);
    return may_restart ? std::min(fanout, (num_nodes + 1) / 2) : fanout;
  }
  if (num_nodes <= kMostFlatNodes) return 0;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(num_nodes))));
}

// The relay's number, for `fanout` > 0: neighbours in the hostfile share one.
inline size_t RelayOf(size_t node, size_t fanout) { return node / fanout; }

}  // namespace dslaunch
