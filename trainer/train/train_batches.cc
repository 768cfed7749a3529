#include "trainer/train/train_batches.h"

namespace dslaunch {

BatchLoader::Options TrainBatchOptions(const Recipe& recipe, int64_t num_samples, int rank,
                                       int ranks, const Schedule& schedule) {
  const int64_t steps = schedule.last_step() - schedule.first_step;
  return {.sampler = {.num_samples = num_samples,
                      .rank = rank,
                      .world_size = ranks,
                      .shuffle = recipe.data.shuffle,
                      .seed = recipe.run.seed,
                      .drop_last = recipe.data.drop_last},
          .batch_size = recipe.engine.batch.micro_batch_size,
          .batches_per_epoch = schedule.batches_per_epoch,
          .first_batch = schedule.first_batch,
          .first_sample = schedule.first_sample,
          .last_batch = schedule.first_batch + steps * schedule.accumulation_steps,
          .prefetch = recipe.data.prefetch};
}

BatchLoader TrainBatches(const Recipe& recipe, const Dataset& data,
                         const TrainingModel& training_model, const Schedule& schedule) {
  const ProcessGroup& replicas = training_model.replicas();
  BatchLoader::Options options =
      TrainBatchOptions(recipe, data.size(), replicas.rank(), replicas.world_size(), schedule);
  options.device = replicas.device();
  return BatchLoader(data, options);
}

}  // namespace dslaunch
