// The network between the nodes and the front end: it delays, and is cut for a while in one
// direction or both. What was sent while it is cut arrives afterwards, for that is what TCP does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/sim/virtual_time.h"
#include "tests/support/random_seed.h"

namespace dslaunch::sim {

// A node's index, or the number of nodes: the front end.
using Place = uint32_t;

// One direction of a connection: nothing overtakes.
struct Wire {
  int64_t last_arrival = 0;
};

class Network {
 public:
  Network(Timeline& timeline, Random& random, uint32_t nodes)
      : timeline_(timeline), random_(random), places_(nodes + 1), cut_until_(places_ * places_) {}

  Place front_end() const { return places_ - 1; }

  // A cut that is there already stays as long as it was to be: what waits for its end would arrive
  // in the midst of a longer one.
  void Cut(Place from, Place to, int64_t until) {
    if (!IsCut(from, to)) cut_until_[from * places_ + to] = until;
  }
  bool IsCut(Place from, Place to) const {
    return timeline_.now() < cut_until_[from * places_ + to];
  }
  // When what is sent now arrives.
  int64_t Send(Wire& wire, Place from, Place to) {
    int64_t arrival = timeline_.now();
    if (from != to) {
      // Now and then a packet is lost and sent again.
      arrival += random_.OneIn(200) ? random_.Between(200, 3'000) : random_.Between(1, 50);
      arrival = std::max(arrival, cut_until_[from * places_ + to]);
    }
    return wire.last_arrival = std::max(wire.last_arrival, arrival);
  }

 private:
  Timeline& timeline_;
  Random& random_;
  const uint32_t places_;
  std::vector<int64_t> cut_until_;
};

}  // namespace dslaunch::sim
