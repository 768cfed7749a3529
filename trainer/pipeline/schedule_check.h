// Checks of a schedule that do not depend on how it was made. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// Returns what is wrong and where, or an empty string if:
// - every micro-batch passes every chunk once, forward and backward, and every action finds its
//   input;
// - each send has a receive, and every two stages have theirs in the same order;
// - no stage waits forever, even if a send ends only when its receive has begun, and all messages
//   between two stages, in both directions, keep one order.
std::string CheckSchedule(const PipelineSchedule& schedule);

// Returns for each stage the largest number of forward passes, over all of its chunks, whose
// backward pass (kBackward or kBackwardInput) has not run yet.
std::vector<int> PeakLiveMicroBatches(const PipelineSchedule& schedule);

// Returns the number of passes as above, but counted until kBackwardWeight if there is one, because
// inputs of layers and gradients of their outputs are held until then.
std::vector<int> PeakHeldMicroBatches(const PipelineSchedule& schedule);

// Returns the papers' bound of PeakLiveMicroBatches for stage s (from 0) of K, M micro-batches and
// v chunks:
// - gpipe: M for each chunk;
// - 1f1b and zb-h1: min(K - s, M); zb-h1 holds at most min(K, M) on every stage;
// - interleaved: (v - 1) R + 2 (K - 1 - s) + 1, or all, where R is the size of the longest round
//   (schedule.h), which is K if K divides M.
int LiveMicroBatchesBound(PipelineScheduleType type, int stages, int micro_batches,
                          int virtual_stages, int stage);

}  // namespace dslaunch
