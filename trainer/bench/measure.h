// Measures what the ranks' exchanges cost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/bench/cost_model.h"

namespace dslaunch {

struct MeasureOptions {
  std::vector<MeasuredExchange> exchanges;  // in this order
  std::vector<int> ranks;                   // each at least 2: the first so many of the group
  int64_t min_bytes = 1024;
  int64_t max_bytes = 64 << 20;
  int64_t factor = 4;  // from one size to the next
  int iterations = 20;
  int warmup = 5;
};

// fp32 values. Every result is checked once, after it was timed. `report` is called on rank 0 with
// each measurement as it is there; the other ranks' result is empty. Collective.
std::vector<Measurement> MeasureExchanges(const ProcessGroup& group, const MeasureOptions& options,
                                          const std::function<void(const Measurement&)>& report);

// `dslaunch-train bench comm [--exchanges a,b] [--ranks 2,4] [--min_bytes N] [--max_bytes N]
// [--iterations N] [--json_file FILE] [--svg_file FILE] [--predict PARAMETERS] [--bandwidth GBPS]`
// in each rank. `words` follow "comm". Throws TrainError kUsage for wrong ones.
void RunBenchComm(const ProcessGroup& group, const std::vector<std::string>& words);

}  // namespace dslaunch
