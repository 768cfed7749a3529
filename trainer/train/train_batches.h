// Makes the loader of a training run's micro-batches on this rank.
#pragma once

#include "trainer/config/recipe.h"
#include "trainer/data/loader.h"
#include "trainer/train/schedule.h"
#include "trainer/train/training_model.h"

namespace dslaunch {

// Returns the loader's options for replica `rank` of `ranks`, from the beginning of `schedule` to
// its last step. The batches are on the CPU. Pure.
BatchLoader::Options TrainBatchOptions(const Recipe& recipe, int64_t num_samples, int rank,
                                       int ranks, const Schedule& schedule);

// Returns the loader of the replica's micro-batches on this rank's device. `data` must outlive it.
BatchLoader TrainBatches(const Recipe& recipe, const Dataset& data,
                         const TrainingModel& training_model, const Schedule& schedule);

}  // namespace dslaunch
