// Which samples a rank trains on and evaluates, index by index.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

// Samples that one rank gets in an epoch: with drop_last the tail that ranks cannot share evenly is
// left out, else some samples are given twice.
inline int64_t SamplesPerRank(int64_t num_samples, int64_t ranks, bool drop_last) {
  return drop_last ? num_samples / ranks : (num_samples + ranks - 1) / ranks;
}

// The indices of torch.utils.data.DistributedSampler, number for number: rank r of N takes
// positions r, r+N, r+2N ... of a permutation drawn from seed + epoch (of 0, 1, 2 ... without
// shuffling). Every rank gets the same number: the order wraps around to fill the last round, or
// with drop_last ends before it. Of an epoch that has begun it takes the rest, from the position on
// that follows the samples that were read, by whatever number of ranks: s+r, s+r+N ...
class DistributedSampler {
 public:
  struct Options {
    int64_t num_samples = 0;
    int rank = 0;
    int world_size = 1;
    bool shuffle = true;
    uint64_t seed = 0;
    bool drop_last = false;
  };
  explicit DistributedSampler(const Options& options) : options_(options) {}

  // `read`: samples of this epoch that were read before, over all ranks, 0 to num_samples.
  void SetEpoch(int64_t epoch, int64_t read = 0) {
    epoch_ = epoch;
    read_ = read;
  }
  std::vector<int64_t> Indices() const;

 private:
  Options options_;
  int64_t epoch_ = 0;
  int64_t read_ = 0;
};

// This rank's share of an evaluation in which every sample counts exactly once: r, r+N, r+2N ...
// below num_samples. Ranks may differ by one sample.
std::vector<int64_t> EvaluationIndices(int64_t num_samples, int rank, int world_size);

}  // namespace dslaunch
