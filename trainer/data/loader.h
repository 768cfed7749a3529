// A rank's micro-batches, in order, read ahead so that a step does not wait for the disk.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"

namespace dslaunch {

// Gives the same batches in the same order whatever `prefetch` is.
class BatchLoader {
 public:
  struct Options {
    DistributedSampler::Options sampler;
    int64_t batch_size = 0;         // samples
    int64_t batches_per_epoch = 0;  // the last one may be smaller
    int64_t first_batch = 0;        // micro-batches since the first epoch began
    int64_t first_sample = 0;       // samples of its epoch that were read before it, over all ranks
    int64_t last_batch = 0;         // one past the last that is read ahead
    int64_t prefetch = 0;  // micro-batches kept ready; 0: read on request, without a thread
    // Where batches are wanted. For a GPU they are read into pinned memory, from which the current
    // stream copies them: Next() does not wait for that.
    c10::Device device = c10::kCPU;
  };

  // Epoch after epoch, without an end. `dataset` must outlive this.
  BatchLoader(const Dataset& dataset, const Options& options);
  // These samples once, for an evaluation (EvaluationIndices). Next() may be called as often as
  // they make batches, of which the last one may be smaller.
  BatchLoader(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size,
              int64_t prefetch);
  // Waits for no more than the batch that is being read.
  ~BatchLoader();

  // The next micro-batch. What went wrong while reading it is thrown here, and again by every call
  // after that. One thread.
  Batch Next();

  // Seconds that Next() has taken so far: the step waited for its data.
  double waited_s() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
