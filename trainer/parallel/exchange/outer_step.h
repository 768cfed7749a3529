// Exchanges weights after every `inner_steps` steps. Between exchanges the ranks train separately.
#pragma once

#include <optional>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "trainer/config/parallel_config.h"
#include "trainer/parallel/exchange/gradient_exchange.h"

namespace dslaunch {

// Implements LocalSGD and DiLoCo. With LocalSGD (Stich, ICLR 2019) the weights become the mean of
// the ranks' weights. DiLoCo (Douillard et al., 2023) computes a gradient as the mean over the
// ranks of (weights after the last exchange - current weights). It applies PyTorch's SGD with this
// gradient to the weights after the last exchange, and all ranks continue with the result. Each
// rank keeps the state of its own optimizer.
class OuterStep : public GradientExchange {
 public:
  // Creates the exchange of `weights`, the tensors that the ranks update. They must be equal on all
  // ranks at construction. They are sent in `dtype`, or in their own dtypes if `dtype` is nullopt.
  OuterStep(const ParallelConfig& config, const ProcessGroup& group,
            std::vector<at::Tensor> buffers, std::vector<NamedTensor> weights,
            std::optional<at::ScalarType> dtype);

  void Reduce(const std::vector<at::Tensor>&) override {}
  bool EndStep() override;
  bool gradients_are_own() const override { return true; }
  bool weights_differ() const override { return true; }
  std::vector<RankTensor> RankTensors() const override;
  void Restart() override;

 private:
  void Exchange();

  const ParallelConfig config_;
  const std::vector<NamedTensor> weights_;
  const std::optional<at::ScalarType> dtype_;
  // Used only by DiLoCo: each weight after the last exchange, and its momentum if outer_momentum is
  // not 0.
  std::vector<at::Tensor> start_, momentum_;
};

}  // namespace dslaunch
