// The network between the nodes and the front end: it delays, and is cut for a while in one
// direction or both. What was sent while it is cut arrives afterwards, for that is what TCP does.
// Between the front end and a node there may be a relay, which is another node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/sim/virtual_time.h"
#include "tests/support/random_seed.h"

namespace dslaunch::sim {

// A node's index, or the number of nodes: the front end.
using Place = uint32_t;

// One direction of a connection: nothing overtakes.
struct Wire {
  int64_t last_arrival = 0;
  bool is_lost = false;  // messages do not arrive, and neither end notices
};

class Network {
 public:
  Network(Timeline& timeline, Random& random, uint32_t nodes)
      : timeline_(timeline), random_(random), front_end_(nodes) {}

  Place front_end() const { return front_end_; }

  // A calm network loses no packet.
  void SetCalm() { is_calm_ = true; }
  // By node; its own relay is reached directly.
  void SetRelays(std::vector<Place> relays) { relays_ = std::move(relays); }
  Place RelayOf(Place node) const { return relays_.empty() ? node : relays_[node]; }
  void SetRelay(Place node, Place relay) { relays_[node] = relay; }
  // That were sent between two places, a relay among them.
  int64_t messages() const { return messages_; }

  // A cut that is there already stays as long as it was to be: what waits for its end would arrive
  // in the midst of a longer one.
  void Cut(Place from, Place to, int64_t until) {
    if (!IsCut(from, to)) cuts_.push_back({from, to, until});
  }
  bool IsCut(Place from, Place to) const { return timeline_.now() < CutUntil(from, to); }
  // When what is sent now arrives.
  int64_t Send(Wire& wire, Place from, Place to) {
    if (wire.is_lost) return Timeline::kNever;
    int64_t arrival = timeline_.now();
    const Place relay = from == front_end_ ? RelayOf(to) : to == front_end_ ? RelayOf(from) : to;
    if (relay != from && relay != to) {
      arrival = Hop(arrival, from, relay);
      from = relay;
    }
    if (from != to) arrival = Hop(arrival, from, to);
    return wire.last_arrival = std::max(wire.last_arrival, arrival);
  }

 private:
  struct OneCut {
    Place from;
    Place to;
    int64_t until;
  };

  // The latest cut counts; there are few.
  int64_t CutUntil(Place from, Place to) const {
    for (auto cut = cuts_.rbegin(); cut != cuts_.rend(); ++cut) {
      if (cut->from == from && cut->to == to) return cut->until;
    }
    return 0;
  }
  int64_t Hop(int64_t sent, Place from, Place to) {
    ++messages_;
    // Now and then a packet is lost and sent again.
    const bool is_lost = !is_calm_ && random_.OneIn(200);
    const int64_t arrival = sent + (is_lost ? random_.Between(200, 3'000) : random_.Between(1, 50));
    return std::max(arrival, CutUntil(from, to));
  }

  Timeline& timeline_;
  Random& random_;
  const Place front_end_;
  bool is_calm_ = false;
  int64_t messages_ = 0;
  std::vector<Place> relays_;
  std::vector<OneCut> cuts_;
};

}  // namespace dslaunch::sim
