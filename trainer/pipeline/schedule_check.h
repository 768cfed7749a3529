// Whether a schedule is right, whoever made it. Pure.
#pragma once

#include <string>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace dslaunch {

// Empty, or what is wrong and where: every micro-batch passes every chunk once, forward and
// backward, in an order that its data allows; each send has its receive, in one order for every two
// stages; and no stage waits for ever where a send is over only when its receive has begun and all
// that two stages exchange, in both directions, travels in one row.
std::string CheckSchedule(const PipelineSchedule& schedule);

// Of each stage: most forward passes whose backward pass (kBackward or kBackwardInput) has yet to
// come, over all of its chunks, at the same time.
std::vector<int> PeakLiveMicroBatches(const PipelineSchedule& schedule);

// The same until kBackwardWeight too, where there is one: the inputs of layers and the gradients of
// their outputs are held until then.
std::vector<int> PeakHeldMicroBatches(const PipelineSchedule& schedule);

// What the papers say that the live ones may be: gpipe M (a chunk); 1f1b min(K - s, M); zb-h1 the
// same, and it holds no more than min(K, M) anywhere; interleaved (v - 1) R + 2 (K - 1 - s) + 1
// chunks, or all, where R are the micro-batches of the longest round (schedule.h), K where K
// divides M. s from 0.
int LiveMicroBatchesBound(PipelineScheduleType type, int stages, int micro_batches,
                          int virtual_stages, int stage);

}  // namespace dslaunch
