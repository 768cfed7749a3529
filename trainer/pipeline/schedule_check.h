// Checks a schedule independently of the algorithm that created it. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// Returns a description of the first error and its place, or an empty string if:
// - every micro-batch passes every chunk once, forward and backward, and every action finds its
//   input;
// - each send has a receive, and any two stages have their sends and receives in the same order;
// - no stage waits forever, even if a send ends only when its receive has begun, and if all
//   messages between two stages, in both directions, keep one order.
std::string CheckSchedule(const PipelineSchedule& schedule);

// Returns, for each stage, the largest number of forward passes, in all of its chunks, whose
// backward pass (kBackward or kBackwardInput) has not run yet.
std::vector<int> PeakLiveMicroBatches(const PipelineSchedule& schedule);

// Returns, for each stage, the largest number of forward passes whose gradients of weights
// (kBackward or kBackwardWeight) are not computed yet. Until then the inputs of layers and the
// gradients of their outputs are held.
std::vector<int> PeakHeldMicroBatches(const PipelineSchedule& schedule);

// Returns the bound of PeakLiveMicroBatches that the papers give for stage s (from 0) of K stages,
// with M micro-batches and v chunks:
// - gpipe: M for each chunk;
// - 1f1b and zb-h1: min(K - s, M); zb-h1 holds at most min(K, M) on every stage;
// - interleaved: (v - 1) R + 2 (K - 1 - s) + 1, or all, where R is the size of the longest round
//   (schedule.h), which is K if K divides M.
int LiveMicroBatchesBound(PipelineScheduleType type, int stages, int micro_batches,
                          int virtual_stages, int stage);

}  // namespace dslaunch
