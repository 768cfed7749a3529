// Finds the exchanges between ranks among recorded events, and computes their durations and
// bandwidths. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/profile_names.h"
#include "trainer/profile/intervals.h"

namespace dslaunch {

// Returns the operation in the name of a backend's event, such as "all_reduce" for
// "gloo:all_reduce" and "all_gather" for "nccl:_all_gather_base"; nullopt if the event is not an
// exchange.
std::optional<std::string> CommunicationKind(std::string_view event);

// Returns the operation of an NCCL kernel, such as "all_reduce" for
// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"; nullopt for other kernels.
std::optional<std::string> KernelCommunicationKind(std::string_view kernel);

struct Exchanged {
  std::string kind;
  int64_t bytes = 0;  // bytes of this rank's input tensor
  Interval time;      // time from the start of the exchange until its result is available
};

struct CommunicationSummary {
  struct Kind {
    std::string name;
    int64_t calls = 0;
    int64_t bytes = 0;
    double seconds = 0;  // sum over all calls, which may overlap each other
  };
  double total_s = 0;       // duration of the times in which at least one exchange ran
  double hidden_s = 0;      // part of total_s in which this rank also computed
  std::vector<Kind> kinds;  // totals of each operation, sorted by name
};

// Returns the totals of `exchanges`. `compute` contains the times of operators, in any order, which
// may overlap.
CommunicationSummary Summarize(const std::vector<Exchanged>& exchanges,
                               std::vector<Interval> compute);

// The bandwidth of an exchange in gigabytes per second, as nccl-tests defines it
// (doc/PERFORMANCE.md). `algorithm` counts the data of an operation. `bus` counts the traffic on
// each rank's link, so it can be compared between different numbers of ranks.
struct Bandwidth {
  double algorithm = 0;
  double bus = 0;
};
// Returns the bandwidth of an exchange; 0 if `seconds` is not positive. `bytes` is defined as
// Exchanged::bytes.
Bandwidth BandwidthOf(const std::string& kind, double bytes, double seconds, int ranks);

}  // namespace dslaunch
