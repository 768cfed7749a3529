// A plugin for mistakes_test.py: a linear classifier that does wrong what its params ask for.
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <limits>

#include "dslaunch/plugin.h"

namespace {

class Mistaken : public dslaunch::Model {
 public:
  explicit Mistaken(const dslaunch::PluginInput& input)
      : used_(register_module("used", torch::nn::Linear(784, 10))),
        spare_(register_module("spare", torch::nn::Linear(10, 10))),
        ignores_spare_(input.numbers.contains("ignores_spare")) {
    const auto nan_step = input.numbers.find("nan_step");
    const auto nan_rank = input.numbers.find("nan_rank");
    if (nan_step != input.numbers.end() && nan_rank != input.numbers.end() &&
        nan_rank->second == std::atoi(std::getenv("RANK"))) {
      nan_step_ = nan_step->second;
    }
  }

  // A micro-batch is a step here.
  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor logits = used_(images.flatten(1));
    if (!ignores_spare_) logits = spare_(logits);
    if (!is_training() || ++step_ != nan_step_) return logits;
    return logits * std::numeric_limits<float>::quiet_NaN();
  }

 private:
  torch::nn::Linear used_, spare_;
  bool ignores_spare_;
  double nan_step_ = 0;  // 0: never
  double step_ = 0;
};

}  // namespace

DSLAUNCH_PLUGIN(Mistaken)
