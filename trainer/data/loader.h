// Reads a rank's micro-batches in order, and reads ahead so that steps do not wait for the disk.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"

namespace dslaunch {

// Loads the micro-batches of one rank. The batches and their order do not depend on `prefetch`.
class BatchLoader {
 public:
  struct Options {
    DistributedSampler::Options sampler;
    int64_t batch_size = 0;         // number of samples in a micro-batch
    int64_t batches_per_epoch = 0;  // micro-batches of an epoch; the last may be smaller
    int64_t first_batch = 0;        // first micro-batch to load, counted from the first epoch
    // The number of samples of the first epoch that all ranks together read before first_batch.
    int64_t first_sample = 0;
    int64_t last_batch = 0;  // end (exclusive) of the batches that are read ahead
    // Number of batches that a thread keeps ready; if 0, Next() reads each batch itself.
    int64_t prefetch = 0;
    // Device of the batches. For a GPU, batches are read into pinned memory, and the current stream
    // copies them to the GPU. Next() does not wait for the copy.
    c10::Device device = c10::kCPU;
  };

  // Makes a loader of one epoch after another without end. `dataset` must outlive this object.
  BatchLoader(const Dataset& dataset, const Options& options);
  // Makes a loader of the samples `indices`, each once, for an evaluation (EvaluationIndices).
  // Next() may be called once for each batch; the last batch may be smaller. `dataset` must outlive
  // this object.
  BatchLoader(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size,
              int64_t prefetch);
  // Stops reading ahead. Waits at most until the batch that is being read has been read.
  ~BatchLoader();

  // Returns the next micro-batch. If reading a batch failed, throws that error, also in every later
  // call. Used by one thread.
  Batch Next();

  // Returns the seconds that Next() has waited for data so far.
  double waited_s() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
