// How long a schedule takes for given times of its parts. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/pipeline_config.h"
#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// Seconds of one micro-batch in one chunk, any unit in fact. kBackward takes both of the backward
// ones.
struct ChunkTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

struct ScheduleTimes {
  std::vector<std::vector<ChunkTimes>> chunks;  // [stage][chunk]
  double transfer = 0;  // from when a send and its receive have begun until the data is there
};

struct TimedAction {
  Action action;
  double start = 0, end = 0;
};

struct SimulatedRun {
  std::vector<std::vector<TimedAction>> stages;  // computing only
  double total = 0;                              // until the last one is done
  std::vector<double> idle;                      // of each stage, of `total`
  double idle_fraction = 0;                      // of all stages together
};

// Transfers take no computing time: they overlap. kReduceTied, kReduceData and kStep take none.
// Precondition: CheckSchedule finds nothing.
SimulatedRun Simulate(const PipelineSchedule& schedule, const ScheduleTimes& times);

// Of chunks that all take the same: a backward pass as long as two forward passes.
SimulatedRun SimulateEvenly(const PipelineSchedule& schedule);

// One line for the user if the stages are idle for more than a quarter of a step, with the number
// of micro-batches that helps; else empty.
std::string IdleRemark(const PipelineConfig& config, int64_t micro_batches);

// One row for each stage, time to the right. The text is for a terminal of `columns` columns, 72 at
// least.
std::string DrawText(const PipelineSchedule& schedule, const SimulatedRun& run, int columns);
std::string DrawSvg(const PipelineSchedule& schedule, const SimulatedRun& run);

}  // namespace dslaunch
