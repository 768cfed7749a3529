// The exchange of weights after every `inner_steps` steps. Between exchanges the ranks train
// separately.
#pragma once

#include <optional>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "trainer/config/parallel_config.h"
#include "trainer/parallel/exchange/gradient_exchange.h"

namespace dslaunch {

// LocalSGD (Stich, ICLR 2019): the weights become the mean of the ranks' weights. DiLoCo (Douillard
// et al., 2023): the mean over the ranks of (weights after the last exchange - weights now) is the
// gradient with which SGD, as in PyTorch, moves the weights after the last exchange; all ranks take
// the result. Each rank keeps the state of its own optimizer.
class OuterStep : public GradientExchange {
 public:
  // `weights` are updated by the ranks, and are equal on all ranks now. They are sent in `dtype`;
  // nullopt: in their own dtypes.
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
  // With DiLoCo, for each weight: its value after the last exchange and, if the outer optimizer has
  // a momentum, its momentum.
  std::vector<at::Tensor> start_, momentum_;
};

}  // namespace dslaunch
