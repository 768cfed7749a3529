// Simulates and draws a schedule, given the times of its actions. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/pipeline_config.h"
#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// The times of one micro-batch in one chunk, in any unit of time. kBackward takes the sum of both
// backward times.
struct ChunkTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

struct ScheduleTimes {
  std::vector<std::vector<ChunkTimes>> chunks;  // times by stage and chunk
  // Time from the moment at which both send and receive have begun to the arrival.
  double transfer = 0;
};

struct TimedAction {
  Action action;
  double start = 0, end = 0;
};

struct SimulatedRun {
  std::vector<std::vector<TimedAction>> stages;  // computing actions of each stage
  double total = 0;                              // time until the last action ends
  std::vector<double> idle;                      // total idle time of each stage
  double idle_fraction = 0;  // mean over all stages of idle time divided by `total`
};

// Returns the start and end of each computing action. Transfers overlap with computing;
// kReduceTied, kReduceData and kStep take no time. Precondition: CheckSchedule returns an empty
// string.
SimulatedRun Simulate(const PipelineSchedule& schedule, const ScheduleTimes& times);

// Simulates a schedule whose chunks take equal time and whose backward passes take as long as two
// forward passes.
SimulatedRun SimulateEvenly(const PipelineSchedule& schedule);

// Returns a line for the user if the stages are idle for more than a quarter of a step, else an
// empty string. The line suggests a number of micro-batches.
std::string IdleRemark(const PipelineConfig& config, int64_t micro_batches);

// Returns a drawing in text with one row for each stage and time from left to right. The rows have
// at most `columns` columns, or 72 if that is more.
std::string DrawText(const PipelineSchedule& schedule, const SimulatedRun& run, int columns);
// Returns the same drawing as an SVG image.
std::string DrawSvg(const PipelineSchedule& schedule, const SimulatedRun& run);

}  // namespace dslaunch
