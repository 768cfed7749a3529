// A rank's micro-batches, in order, read ahead so that a step does not wait for the disk.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"

namespace dslaunch {

// Returns the same batches in the same order, whatever `prefetch` is.
class BatchLoader {
 public:
  struct Options {
    DistributedSampler::Options sampler;
    int64_t batch_size = 0;         // samples
    int64_t batches_per_epoch = 0;  // the last one may be smaller
    int64_t first_batch = 0;        // micro-batches since the first epoch began
    int64_t first_sample = 0;       // samples of that epoch that all ranks together had read before
    int64_t last_batch = 0;         // index after the last one that is read ahead
    int64_t prefetch = 0;  // micro-batches kept ready; 0: read on request, without a thread
    // Device of the batches. For a GPU they are read into pinned memory, from which the current
    // stream copies them; Next() does not wait for the copy.
    c10::Device device = c10::kCPU;
  };

  // Loads epoch after epoch, without end. `dataset` must outlive this.
  BatchLoader(const Dataset& dataset, const Options& options);
  // Loads these samples once, for an evaluation (EvaluationIndices). Next() may be called once per
  // batch; the last batch may be smaller.
  BatchLoader(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size,
              int64_t prefetch);
  // Waits no longer than for the batch that is being read.
  ~BatchLoader();

  // Returns the next micro-batch. Throws the error of reading it, and the same error in every later
  // call. One thread.
  Batch Next();

  // Returns the seconds that steps have waited for data in Next() so far.
  double waited_s() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
