// PowerSGD (Vogels et al., NeurIPS 2019, algorithm 1): the mean of the ranks' gradients as the
// product of two thin matrices, found by one step of power iteration from the last step's.
#pragma once

#include <map>
#include <random>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "trainer/config/parallel_config.h"
#include "trainer/optim/rank_tensor.h"

namespace dslaunch {

// The same numbers as PyTorch's powerSGD_hook with all gradients in one bucket, in the reverse
// order of the parameters; what this leaves out is that the error of gradients that travel whole,
// which adds up to 0 over the ranks, is not kept. One thread.
class PowerSgd {
 public:
  // Gradients have `dtype`, or a parameter's where that is wider.
  PowerSgd(const ParallelConfig& config, const ProcessGroup& group,
           const std::vector<NamedTensor>& parameters, at::ScalarType dtype);

  // Collective: each rank's gradients of step `step`, of which the first is 1, become the mean.
  void Reduce(const std::vector<at::Tensor>& gradients, int64_t step);
  void Restart();  // without errors, from new matrices
  std::vector<RankTensor> RankTensors() const;

 private:
  struct Matrix {
    size_t parameter = 0;
    int64_t rows = 0, columns = 0, rank = 0;
    at::Tensor error;  // [rows, columns], of this rank
    at::Tensor right;  // [columns, rank], of the last step
  };

  void StartMatrices(at::ScalarType dtype);
  void Orthogonalize(at::Tensor& matrix) const;

  const ParallelConfig config_;
  const ProcessGroup& group_;
  std::vector<std::string> names_;  // of the parameters
  std::vector<Matrix> matrices_;    // in the order in which they travel
  std::vector<size_t> whole_;       // the other parameters
  at::Tensor started_;              // a number on the CPU: how often the matrices were random
};

}  // namespace dslaunch
