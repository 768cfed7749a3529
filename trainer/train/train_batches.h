// Makes the loader of a training run's micro-batches on this rank.
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/train/schedule.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Returns the options of the loader for replica `rank` of `ranks`, from the first to the last step
// of `schedule`. The batches are on the CPU. Pure.
BatchLoader::Options TrainBatchOptions(const Recipe& recipe, int64_t num_samples, int rank,
                                       int ranks, const Schedule& schedule);

// Returns the loader of this replica's micro-batches on this rank's device. `data` must outlive the
// loader.
BatchLoader TrainBatches(const Recipe& recipe, const Dataset& data,
                         const TrainingModel& training_model, const Schedule& schedule);

}  // namespace dslaunch
