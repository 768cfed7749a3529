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

// What the papers say that this may be: gpipe M (a chunk); 1f1b min(K - s, M); interleaved and
// zb-h1 as their papers have it. s from 0.
int LiveMicroBatchesBound(PipelineScheduleType type, int stages, int micro_batches,
                          int virtual_stages, int stage);

}  // namespace dslaunch
