// A job of many nodes behind relays, with the product's cores: nothing else goes wrong than what is
// asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::sim {

struct TreeJob {
  uint32_t nodes = 0;
  uint32_t fanout = 0;  // 0: no relays
  enum class Lost { kNothing, kRelay, kRelaysMachine };
  Lost lost = Lost::kNothing;  // while the ranks run
  enum class Group { kLast, kFirst };
  Group lost_group = Group::kLast;  // the first one's relay is also the rendezvous' host
  uint32_t max_restarts = 0;
};

struct TreeRun {
  std::string error;  // the invariant that did not hold; empty: all did
  std::optional<int> exit_code;
  uint64_t attempts = 0;
  int64_t virtual_ms = 0;
  double messages_per_node = 0;  // between two places, a relay among them
  double cpu_us_per_node = 0;    // CPU time of this process
};

TreeRun RunTree(uint64_t seed, const TreeJob& tree);

}  // namespace dslaunch::sim
