// A rank's micro-batches, one after the other, read ahead so that a step never waits for data it
// could have had.
#pragma once

#include <memory>

#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"

namespace dslaunch {

class BatchLoader {
 public:
  struct Options {
    DistributedSampler::Options sampler;
    int64_t batch_size = 0;         // samples
    int64_t batches_per_epoch = 0;  // the last one may be smaller
    int64_t first_batch = 0;        // micro-batches since the first epoch began
    int64_t last_batch = 0;         // one past the last that will be asked for
    int64_t prefetch = 0;           // micro-batches kept ready; 0: read when asked for, no thread
  };

  // `dataset` must outlive this.
  BatchLoader(const Dataset& dataset, const Options& options);
  ~BatchLoader();

  // The next micro-batch. What went wrong while reading it is thrown here. One thread.
  Batch Next();

  // Seconds that Next() has waited so far.
  double waited_s() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
