// What ranks that train apart do after every `inner_steps` steps.
#pragma once

#include <optional>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "trainer/config/parallel_config.h"
#include "trainer/optim/rank_tensor.h"

namespace dslaunch {

// LocalSGD (Stich, ICLR 2019): the weights become the ranks' mean. DiLoCo (Douillard et al., 2023):
// the ranks' mean of (weights after the last exchange - weights now) is the gradient with which
// SGD, as PyTorch has it, moves the former; the result is every rank's weights. What a rank's own
// optimizer keeps stays its own. One thread.
class OuterStep {
 public:
  // `weights` are updated by the ranks, and the same on all of them now. They travel in `dtype`;
  // nullopt: in their own.
  OuterStep(const ParallelConfig& config, const ProcessGroup& group,
            std::vector<NamedTensor> weights, std::optional<at::ScalarType> dtype);

  // Whether the ranks exchange after this step, of which the first is 1.
  bool IsDue(int64_t step) const { return step % config_.inner_steps == 0; }
  void Exchange();  // collective
  // Collective: the weights become rank 0's, and everything starts from there.
  void Restart();
  std::vector<RankTensor> RankTensors() const;

 private:
  const ParallelConfig config_;
  const ProcessGroup& group_;
  const std::vector<NamedTensor> weights_;
  const std::optional<at::ScalarType> dtype_;
  // DiLoCo, of each weight: after the last exchange; and with a momentum the outer optimizer's.
  std::vector<at::Tensor> start_, momentum_;
};

}  // namespace dslaunch
