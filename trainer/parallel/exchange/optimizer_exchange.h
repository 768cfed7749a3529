// Implements the exchange for optimizers that compress their own messages (1-bit Adam and LAMB, 0/1
// Adam). Such an optimizer gets reduced gradients in some steps, and the rank's own gradients in
// the other steps.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "trainer/optim/optimizer.h"
#include "trainer/parallel/exchange/flat_mean.h"
#include "trainer/parallel/exchange/gradient_exchange.h"
#include "trainer/parallel/grad_sync.h"

namespace dslaunch {

class OptimizerExchange : public GradientExchange {
 public:
  // Creates the exchange for `optimizer`, which must outlive this object like `parameters`.
  // `options` apply to the steps in which gradients are reduced over all ranks.
  OptimizerExchange(const ProcessGroup& group, std::vector<at::Tensor> buffers,
                    const std::vector<NamedTensor>& parameters, const Optimizer& optimizer,
                    const GradSyncOptions& options, bool weights_differ)
      : GradientExchange(group, std::move(buffers)),
        parameters_(parameters),
        optimizer_(optimizer),
        options_(options),
        weights_differ_(weights_differ) {}

  void Reduce(const std::vector<at::Tensor>& gradients) override {
    own_ = !optimizer_.TakesReducedGradients();
    if (own_) return;
    std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
    for (size_t i = 0; i < gradients.size(); ++i) {
      by_dtype[MessageDtype(options_, parameters_[i].tensor.scalar_type())].push_back(gradients[i]);
    }
    for (const auto& [dtype, same] : by_dtype) {
      AllReduceFlat(group_, same, dtype, ScaleOf(options_, group_.world_size()));
    }
  }
  bool gradients_are_own() const override { return own_; }
  bool weights_differ() const override { return weights_differ_; }

 private:
  const std::vector<NamedTensor> parameters_;
  const Optimizer& optimizer_;
  const GradSyncOptions options_;
  const bool weights_differ_;
  bool own_ = false;
};

}  // namespace dslaunch
