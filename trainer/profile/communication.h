// Which of the recorded events are exchanges between ranks, and what they took. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/communication_kinds.h"
#include "trainer/profile/intervals.h"

namespace dslaunch {

// What a backend's event is: "gloo:all_reduce" and "nccl:_all_gather_base" are "all_reduce" and
// "all_gather". nullopt: no exchange.
std::optional<std::string> CommunicationKind(std::string_view event);

// Of a kernel of NCCL's: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" is "all_reduce". nullopt:
// it is none of NCCL's.
std::optional<std::string> KernelCommunicationKind(std::string_view kernel);

struct Exchanged {
  std::string kind;
  int64_t bytes = 0;  // of this rank's input tensor
  Interval time;      // from its start until the result was there
};

struct CommunicationSummary {
  struct Kind {
    std::string name;
    int64_t calls = 0;
    int64_t bytes = 0;
    double seconds = 0;  // of all calls, which may overlap
  };
  double total_s = 0;       // during which there was any
  double hidden_s = 0;      // of it, during which this rank computed as well
  std::vector<Kind> kinds;  // by name
};

// `compute` are the times of operators, in any order; they may overlap.
CommunicationSummary Summarize(const std::vector<Exchanged>& exchanges,
                               std::vector<Interval> compute);

// Gigabytes a second, as nccl-tests define them (doc/PERFORMANCE.md): what an operation moved, and
// what that is on the wire of each rank, whatever the number of ranks.
struct Bandwidth {
  double algorithm = 0;
  double bus = 0;
};
// `bytes` as Exchanged has them.
Bandwidth BandwidthOf(const std::string& kind, double bytes, double seconds, int ranks);

}  // namespace dslaunch
