#include "trainer/train/train_batches.h"

namespace dslaunch {

BatchLoader TrainBatches(const Recipe& recipe, const Dataset& data,
                         const TrainingModel& training_model, const Schedule& schedule) {
  const int64_t steps = schedule.last_step() - schedule.first_step;
  return BatchLoader(data,
                     {.sampler = {.num_samples = data.size(),
                                  .rank = training_model.replicas().rank(),
                                  .world_size = training_model.replicas().world_size(),
                                  .shuffle = recipe.data.shuffle,
                                  .seed = recipe.run.seed,
                                  .drop_last = recipe.data.drop_last},
                      .batch_size = recipe.engine.batch.micro_batch_size,
                      .batches_per_epoch = schedule.batches_per_epoch,
                      .first_batch = schedule.first_batch,
                      .last_batch = schedule.first_batch + steps * schedule.accumulation_steps,
                      .prefetch = recipe.data.prefetch,
                      .device = training_model.replicas().device()});
}

}  // namespace dslaunch
