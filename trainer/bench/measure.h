// Measures the durations of exchanges between the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/bench/cost_model.h"

namespace dslaunch {

struct MeasureOptions {
  std::vector<MeasuredExchange> exchanges;  // exchanges in the order in which they are measured
  // The numbers of ranks to measure, each at least 2. For each number n, the first n ranks of the
  // group are measured.
  std::vector<int> ranks;
  int64_t min_bytes = 1024;
  int64_t max_bytes = 64 << 20;
  int64_t factor = 4;  // ratio of each size to the previous size
  int iterations = 20;
  int warmup = 5;
};

// Measures exchanges of fp32 values, and checks every result once after the timed runs. Rank 0
// calls `report` with each measurement as soon as it is made, and returns all measurements; other
// ranks return an empty list. Collective.
std::vector<Measurement> MeasureExchanges(const ProcessGroup& group, const MeasureOptions& options,
                                          const std::function<void(const Measurement&)>& report);

// Implements `dslaunch-train bench comm [--exchanges a,b] [--ranks 2,4] [--min_bytes N]
// [--max_bytes N] [--iterations N] [--json_file FILE] [--svg_file FILE] [--predict PARAMETERS]
// [--bandwidth GBPS]` on each rank. `words` are the arguments after "comm". Throws TrainError
// kUsage if they are not valid. Collective.
void RunBenchComm(const ProcessGroup& group, const std::vector<std::string>& words);

}  // namespace dslaunch
