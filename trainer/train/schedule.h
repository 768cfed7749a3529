// Computes the length of a run in steps, micro-batches and epochs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/checkpoint/manifest.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// The steps and epochs of a run, both counted from 1. A resumed run continues at the sample where
// the last run stopped, for any number of ranks and any batch size: the rest of the epoch is
// divided into micro-batches again, of which the last may be smaller. Micro-batches continue from
// one epoch into the next, so a step that accumulates several of them may begin in one epoch and
// end in the next. Such a step belongs to the epoch in which it ends.
struct Schedule {
  int64_t batches_per_epoch = 0;   // micro-batches that one rank reads in an epoch
  int64_t accumulation_steps = 1;  // micro-batches that one rank reads in a step
  int64_t total_steps = 0;
  bool exchange_each = false;  // true if the ranks exchange their losses after each step
  int64_t print_every = 0;     // steps between two printed lines; 0 to print no lines
  int64_t save_every = 0;      // steps between two checkpoints; 0 to save only at the end
  int64_t eval_every = 0;      // steps between two evaluations; 0 to evaluate only at the end
  int64_t first_step = 0;      // number of the last step before this run
  // The number of micro-batches before this run, counted so that each epoch ends at a multiple of
  // batches_per_epoch.
  int64_t first_batch = 0;
  // The number of samples of this run's first epoch that all ranks together had read before this
  // run.
  int64_t first_sample = 0;
  int64_t batch_samples = 0;  // number of samples of a full micro-batch over all ranks
  int64_t left_out = 0;       // micro-batches at the end of the last epoch that do not fill a step

  int64_t EpochOf(int64_t step) const {
    return (BatchesAfter(step) + batches_per_epoch - 1) / batches_per_epoch;
  }
  Position PositionAfter(int64_t step) const {
    const int64_t batch = BatchesAfter(step);
    const int64_t epoch = batch / batches_per_epoch;
    const bool begun = epoch == first_batch / batches_per_epoch;
    const int64_t batches = batch - (begun ? first_batch : epoch * batches_per_epoch);
    return {step, epoch, (begun ? first_sample : 0) + batches * batch_samples};
  }
  int64_t last_step() const { return std::max(first_step, total_steps); }
  bool SavesAfter(int64_t step) const { return save_every > 0 && step % save_every == 0; }
  bool EvaluatesAfter(int64_t step) const { return eval_every > 0 && step % eval_every == 0; }
  // Returns whether ranks that otherwise train without waiting for each other synchronize after
  // this step, to save or evaluate weights.
  bool MeetsAfter(int64_t step) const { return SavesAfter(step) || EvaluatesAfter(step); }
  // Returns the first step after `step` at which the ranks synchronize, at the latest the last
  // step.
  int64_t NextMeeting(int64_t step) const {
    do ++step;
    while (step < total_steps && !MeetsAfter(step));
    return step;
  }
  bool EndsEpoch(int64_t step) const {
    return step == total_steps || EpochOf(step + 1) != EpochOf(step);
  }
  // Returns whether the ranks must exchange their losses after this step. The value is the same on
  // every rank.
  bool ExchangesAfter(int64_t step) const {
    return exchange_each || EndsEpoch(step) || SavesAfter(step) || EvaluatesAfter(step) ||
           (print_every > 0 && step % print_every == 0);
  }

 private:
  int64_t BatchesAfter(int64_t step) const {
    return first_batch + (step - first_step) * accumulation_steps;
  }
};

// Returns the schedule of a run that starts at `from`. Throws kBadInput if the data set is smaller
// than one global batch. `ranks` is the number of replicas.
Schedule MakeSchedule(const Recipe& recipe, int64_t num_samples, int64_t ranks,
                      const Position& from = {});

}  // namespace dslaunch
