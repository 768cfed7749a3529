// Simulates the network between the nodes and the front end. It delays messages and can be cut in
// one direction or both. A message that is sent during a cut arrives after the cut, as with TCP.
// Between the front end and a node there may be a relay, which is another node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/sim/virtual_time.h"
#include "tests/support/random_seed.h"

namespace dslaunch::sim {

// A node's index, or the number of nodes for the front end.
using Place = uint32_t;

// One direction of a connection. Messages arrive in the order in which they were sent.
struct Wire {
  int64_t last_arrival = 0;
  bool is_lost = false;  // whether messages are lost without either end noticing
};

class Network {
 public:
  Network(Timeline& timeline, Random& random, uint32_t nodes)
      : timeline_(timeline), random_(random), front_end_(nodes) {}

  Place front_end() const { return front_end_; }

  // Makes the network lose no packets from now on.
  void SetCalm() { is_calm_ = true; }
  // Sets the relay of each node, by node. A node that is its own relay is reached directly.
  void SetRelays(std::vector<Place> relays) { relays_ = std::move(relays); }
  Place RelayOf(Place node) const { return relays_.empty() ? node : relays_[node]; }
  void SetRelay(Place node, Place relay) { relays_[node] = relay; }
  // Returns the number of messages sent between two places. A message through a relay counts twice.
  int64_t messages() const { return messages_; }

  // Cuts one direction until `until`. An existing cut is not extended. Messages that wait for its
  // end already have a planned arrival, which would fall into the longer cut.
  void Cut(Place from, Place to, int64_t until) {
    if (!IsCut(from, to)) cuts_.push_back({from, to, until});
  }
  bool IsCut(Place from, Place to) const { return timeline_.now() < CutUntil(from, to); }
  // Returns the time at which a message that is sent now arrives; kNever if the wire is lost.
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

  // Returns the end of the latest cut of this direction; 0 if there was none. A linear search
  // suffices, because there are few cuts.
  int64_t CutUntil(Place from, Place to) const {
    for (auto cut = cuts_.rbegin(); cut != cuts_.rend(); ++cut) {
      if (cut->from == from && cut->to == to) return cut->until;
    }
    return 0;
  }
  int64_t Hop(int64_t sent, Place from, Place to) {
    ++messages_;
    // One in 200 packets is lost and retransmitted, which delays the message.
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
