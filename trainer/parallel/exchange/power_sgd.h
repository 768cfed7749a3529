// Implements PowerSGD (Vogels et al., NeurIPS 2019, algorithm 1). The mean of the ranks' gradients
// is approximated by the product of two thin matrices, which one step of power iteration computes
// from the matrices of the last training step.
#pragma once

#include <map>
#include <random>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "trainer/config/parallel_config.h"
#include "trainer/parallel/exchange/gradient_exchange.h"

namespace dslaunch {

// Exchanges gradients by PowerSGD. Computes the same numbers as PyTorch's powerSGD_hook with all
// gradients in one bucket, in the reverse order of the parameters. The only difference is that no
// error is kept for gradients that are sent whole, because these errors add up to 0 over the ranks.
class PowerSgd : public GradientExchange {
 public:
  // Creates the exchange of gradients that have `dtype`, or the parameter's own dtype if that is
  // wider.
  PowerSgd(const ParallelConfig& config, const ProcessGroup& group, std::vector<at::Tensor> buffers,
           const std::vector<NamedTensor>& parameters, at::ScalarType dtype);

  void Reduce(const std::vector<at::Tensor>& gradients) override;
  std::vector<RankTensor> RankTensors() const override;
  void Restart() override;  // clears the errors and draws new right factors

 private:
  struct Matrix {
    size_t parameter = 0;
    int64_t rows = 0, columns = 0, rank = 0;
    // Compression error of this rank, [rows, columns]; undefined without use_error_feedback.
    at::Tensor error;
    at::Tensor right;  // right factor of the last step, [columns, rank]
  };

  void StartMatrices(at::ScalarType dtype);
  void Orthogonalize(at::Tensor& matrix) const;

  const ParallelConfig config_;
  std::vector<std::string> names_;  // names of the parameters
  std::vector<Matrix> matrices_;    // compressed gradients, in the order in which they are sent
  std::vector<size_t> whole_;       // indices of parameters whose gradients are sent whole
  at::Tensor started_;  // number of times that the right factors were drawn; [1] on the CPU
};

}  // namespace dslaunch
