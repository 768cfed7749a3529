// Finds the exchanges between ranks among recorded events, and measures them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/profile_names.h"
#include "trainer/profile/intervals.h"

namespace dslaunch {

// Returns the operation of a backend's event: "all_reduce" for "gloo:all_reduce", "all_gather" for
// "nccl:_all_gather_base". Returns nullopt if the event is not an exchange.
std::optional<std::string> CommunicationKind(std::string_view event);

// Returns the operation of a kernel of NCCL: "all_reduce" for
// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)". Returns nullopt for other kernels.
std::optional<std::string> KernelCommunicationKind(std::string_view kernel);

struct Exchanged {
  std::string kind;
  int64_t bytes = 0;  // size of this rank's input tensor
  Interval time;      // time from the start of the exchange until its result was available
};

struct CommunicationSummary {
  struct Kind {
    std::string name;
    int64_t calls = 0;
    int64_t bytes = 0;
    double seconds = 0;  // total of all calls, which may overlap
  };
  double total_s = 0;       // time with at least one exchange
  double hidden_s = 0;      // part of total_s in which this rank also computed
  std::vector<Kind> kinds;  // sorted by name
};

// `compute` holds the times of operators, in any order; they may overlap.
CommunicationSummary Summarize(const std::vector<Exchanged>& exchanges,
                               std::vector<Interval> compute);

// Gigabytes per second as defined by nccl-tests (doc/PERFORMANCE.md): the data of an operation, and
// its traffic on each rank's link, whatever the number of ranks.
struct Bandwidth {
  double algorithm = 0;
  double bus = 0;
};
// `bytes` is as in Exchanged.
Bandwidth BandwidthOf(const std::string& kind, double bytes, double seconds, int ranks);

}  // namespace dslaunch
