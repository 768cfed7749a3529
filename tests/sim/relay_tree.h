// Simulates a job of many nodes behind relays, with the product's cores. No fault happens except
// TreeJob::lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::sim {

struct TreeJob {
  uint32_t nodes = 0;
  uint32_t fanout = 0;  // 0 means no relays
  enum class Lost { kNothing, kRelay, kRelaysMachine };
  Lost lost = Lost::kNothing;  // lost while the ranks run
  enum class Group { kLast, kFirst };
  Group lost_group = Group::kLast;  // the first group's relay also hosts the rendezvous
  uint32_t max_restarts = 0;
};

struct TreeRun {
  std::string error;  // the first violated invariant; empty if all held
  std::optional<int> exit_code;
  uint64_t attempts = 0;
  int64_t virtual_ms = 0;
  double messages_per_node = 0;  // a message through a relay counts twice
  double cpu_us_per_node = 0;    // CPU time of this process, in microseconds
};

TreeRun RunTree(uint64_t seed, const TreeJob& tree);

}  // namespace dslaunch::sim
