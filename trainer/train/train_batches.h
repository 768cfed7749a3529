// The micro-batches of a training run on this rank.
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/train/schedule.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Those of rank `rank` of `ranks` replicas, from where `schedule` begins to its last step, on the
// CPU. Pure.
BatchLoader::Options TrainBatchOptions(const Recipe& recipe, int64_t num_samples, int rank,
                                       int ranks, const Schedule& schedule);

// They on this rank's device. `data` must outlive the result.
BatchLoader TrainBatches(const Recipe& recipe, const Dataset& data,
                         const TrainingModel& training_model, const Schedule& schedule);

}  // namespace dslaunch
