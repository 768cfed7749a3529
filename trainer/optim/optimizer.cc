#include "trainer/optim/optimizer.h"

#include <ATen/ATen.h>

namespace dslaunch {
namespace {

std::vector<at::Tensor> ZerosLike(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor));
  return zeros;
}

// Adam with weight decay in the gradient (Adam) or beside it (AdamW).
class FusedAdam : public Optimizer {
 public:
  FusedAdam(const OptimizerConfig& config, std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), config.lr),
        config_(config),
        mean_(ZerosLike(parameters_)),
        square_(ZerosLike(parameters_)) {
    for (size_t i = 0; i < parameters_.size(); ++i) steps_.push_back(at::zeros({}, at::kFloat));
  }

  void Step() override {
    at::_foreach_add_(steps_, 1);
    if (config_.type == OptimizerConfig::Type::kAdamW) {
      at::_fused_adamw_(parameters_, Gradients(), mean_, square_, {}, steps_, lr_, config_.beta1,
                        config_.beta2, config_.weight_decay, config_.eps, /*amsgrad=*/false,
                        /*maximize=*/false);
    } else {
      at::_fused_adam_(parameters_, Gradients(), mean_, square_, {}, steps_, lr_, config_.beta1,
                       config_.beta2, config_.weight_decay, config_.eps, /*amsgrad=*/false,
                       /*maximize=*/false);
    }
  }

  std::vector<OptimizerSlot> State() const override {
    return {{"exp_avg", mean_}, {"exp_avg_sq", square_}, {"step", steps_}};
  }
  void Resume(int64_t) override {}  // its state is all in tensors

 private:
  OptimizerConfig config_;
  std::vector<at::Tensor> mean_, square_, steps_;
};

class FusedSgd : public Optimizer {
 public:
  FusedSgd(const OptimizerConfig& config, std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), config.lr), config_(config) {
    if (config_.momentum != 0) momentum_buffers_ = ZerosLike(parameters_);
  }

  void Step() override {
    at::_fused_sgd_(parameters_, Gradients(), momentum_buffers_, config_.weight_decay,
                    config_.momentum, lr_, config_.dampening, config_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/first_step_);
    first_step_ = false;
  }

  std::vector<OptimizerSlot> State() const override {
    if (momentum_buffers_.empty()) return {};
    return {{"momentum_buffer", momentum_buffers_}};
  }
  void Resume(int64_t updates) override { first_step_ = updates == 0; }

 private:
  OptimizerConfig config_;
  std::vector<at::Tensor> momentum_buffers_;
  bool first_step_ = true;
};

}  // namespace

std::vector<at::Tensor> Optimizer::Gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  return gradients;
}

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config,
                                         std::vector<at::Tensor> parameters) {
  if (config.type == OptimizerConfig::Type::kSgd) {
    return std::make_unique<FusedSgd>(config, std::move(parameters));
  }
  return std::make_unique<FusedAdam>(config, std::move(parameters));
}

}  // namespace dslaunch
