#include "trainer/train/schedule.h"

#include "trainer/base/train_error.h"
#include "trainer/data/sampler.h"
#include "trainer/data/token_stream.h"

namespace dslaunch {
namespace {

// Returns the number of micro-batches into which one rank divides its share of `samples` samples.
int64_t BatchesOf(const Recipe& recipe, int64_t samples, int64_t ranks) {
  const int64_t size = recipe.engine.batch.micro_batch_size;
  const int64_t per_rank = SamplesPerRank(samples, ranks, recipe.data.drop_last);
  return recipe.engine.dataloader_drop_last ? per_rank / size : (per_rank + size - 1) / size;
}

}  // namespace

Schedule MakeSchedule(const Recipe& recipe, int64_t num_samples, int64_t ranks,
                      const Position& from) {
  const BatchConfig& batch = recipe.engine.batch;
  if (num_samples < batch.train_batch_size) {
    const int64_t tokens = TokensPerSample(recipe.data, recipe.model.needs());
    throw TrainError(ExitCode::kBadInput,
                     DataName(recipe.data) + ": " + std::to_string(num_samples) +
                         " training samples" +
                         (tokens > 0 ? " of " + std::to_string(tokens) + " tokens" : "") +
                         " are fewer than one global batch, train_batch_size " +
                         std::to_string(batch.train_batch_size));
  }
  Schedule schedule;
  schedule.batches_per_epoch = BatchesOf(recipe, num_samples, ranks);
  schedule.accumulation_steps = batch.accumulation_steps;
  schedule.batch_samples = batch.micro_batch_size * ranks;
  schedule.first_step = from.step;
  const int64_t read = std::min(from.samples_in_epoch, num_samples);
  const int64_t left = BatchesOf(recipe, num_samples - read, ranks);
  schedule.first_batch = (from.epoch + 1) * schedule.batches_per_epoch - left;
  schedule.first_sample = left > 0 ? read : 0;
  if (recipe.run.steps) {
    schedule.total_steps = *recipe.run.steps;
  } else {
    const int64_t batches = *recipe.run.epochs * schedule.batches_per_epoch - schedule.first_batch;
    schedule.total_steps = from.step + std::max<int64_t>(batches, 0) / batch.accumulation_steps;
    schedule.left_out = std::max<int64_t>(batches, 0) % batch.accumulation_steps;
  }
  const MonitorsConfig& monitors = recipe.engine.monitors;
  schedule.exchange_each =
      !recipe.run.metrics_jsonl.empty() || monitors.csv || monitors.tensorboard;
  schedule.print_every = recipe.engine.steps_per_print;
  schedule.save_every = recipe.run.save_every.value_or(0);
  schedule.eval_every = recipe.run.eval_every.value_or(0);
  return schedule;
}

}  // namespace dslaunch
