// Computes the indices of the samples that a rank uses in training or evaluation.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

// Returns the number of samples of a rank in an epoch. With drop_last, samples that the ranks
// cannot share evenly are omitted; otherwise some samples are used twice.
inline int64_t SamplesPerRank(int64_t num_samples, int64_t ranks, bool drop_last) {
  return drop_last ? num_samples / ranks : (num_samples + ranks - 1) / ranks;
}

// Returns the same indices as torch.utils.data.DistributedSampler. Rank r of N gets positions r,
// r+N, r+2N ... of a permutation drawn from seed + epoch (of 0, 1, 2 ... without shuffling). Every
// rank gets the same number of positions: the last round is filled from the beginning of the
// permutation, or omitted with drop_last. If any number of ranks have read s samples of the epoch
// already, the positions continue after these samples: s+r, s+r+N ...
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

  // Begins an epoch. `read` is the number of samples of this epoch, from 0 to num_samples, that all
  // ranks together have read already.
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

// Returns this rank's share of an evaluation in which every sample counts exactly once: r, r+N,
// r+2N ... below num_samples. The numbers of samples of two ranks may differ by one.
std::vector<int64_t> EvaluationIndices(int64_t num_samples, int rank, int world_size);

}  // namespace dslaunch
