// Names the ranks for which others wait, using the records of PyTorch's Flight Recorder in each
// rank. All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/stacks.pb.h"

namespace dslaunch {

struct FlightVerdict {
  enum class Kind {
    kNotEntered,      // `ranks` have not called an exchange in which the others wait
    kOtherOrder,      // `ranks` wait for each other in different exchanges
    kOtherOperation,  // operations, sizes or types of one exchange differ between ranks
    kNotStarted,      // devices of `ranks` have not begun an exchange that other devices have begun
  };
  Kind kind = Kind::kNotEntered;
  bool sure = false;            // whether every rank of the exchange has a record
  std::vector<uint32_t> ranks;  // ascending; empty for kOtherOperation without a minority
  // Exchange such as "all_reduce (collective 3 of group default_pg)"; for kOtherOperation the
  // clause "the operations of collective 3 of group default_pg differ".
  std::string what;
  std::vector<std::string> lines;  // evidence, sanitized: a line for each exchange and its ranks
};

// Returns how the records of an attempt's ranks differ; nullopt if they show no difference. A
// record with `trouble` counts as missing. An exchange is compared only between ranks that are
// known to belong to its group. Exchanges between two ranks count only if the records of both ranks
// are known.
std::optional<FlightVerdict> JudgeFlight(const std::vector<const pb::FlightRecord*>& records,
                                         uint32_t world_size);

}  // namespace dslaunch
