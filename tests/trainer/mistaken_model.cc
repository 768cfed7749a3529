// Plugin for mistakes_test.py and desync_detector_test.py: a linear classifier that makes the
// mistakes named in its params.
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include "dslaunch/plugin.h"

namespace {

class Mistaken : public dslaunch::Model {
 public:
  explicit Mistaken(const dslaunch::PluginInput& input)
      : used_(register_module("used", torch::nn::Linear(784, 10))),
        spare_(register_module("spare", torch::nn::Linear(10, 10))),
        ignores_spare_(input.numbers.contains("ignores_spare")) {
    nan_step_ = StepOnThisRank(input, "nan_step", "nan_rank");
    drift_step_ = StepOnThisRank(input, "drift_step", "drift_rank");
    skip_step_ = StepOnThisRank(input, "skip_step", "skip_rank");
    skips_eval_ = StepOnThisRank(input, "skips_eval", "skip_rank") != 0;
    sleep_step_ = StepOnThisRank(input, "sleep_step", "sleep_rank");
  }

  // Counts each micro-batch as a step.
  at::Tensor forward(const at::Tensor& images) override {
    if (is_training()) ++step_;
    if (is_training() && step_ == drift_step_) {
      const at::NoGradGuard no_grad;
      used_->weight[3][100].add_(1e-6);  // the drift is only on this rank
    }
    if (is_training() && step_ == sleep_step_) {
      std::this_thread::sleep_for(std::chrono::seconds(12));
    }
    at::Tensor logits = used_(images.flatten(1));
    const bool skips = is_training() ? step_ == skip_step_ : skips_eval_;
    if (!ignores_spare_ && !skips) logits = spare_(logits);
    if (!is_training() || step_ != nan_step_) return logits;
    return logits * std::numeric_limits<float>::quiet_NaN();
  }

 private:
  // Returns the step of the mistake; 0, which is not a step, if either parameter is missing or
  // another rank makes the mistake.
  static double StepOnThisRank(const dslaunch::PluginInput& input, const std::string& step,
                               const std::string& rank) {
    const auto at_step = input.numbers.find(step), on_rank = input.numbers.find(rank);
    if (at_step == input.numbers.end() || on_rank == input.numbers.end()) return 0;
    return on_rank->second == std::atoi(std::getenv("RANK")) ? at_step->second : 0;
  }

  torch::nn::Linear used_, spare_;
  bool ignores_spare_;
  double nan_step_ = 0;
  double drift_step_ = 0;
  double skip_step_ = 0;
  bool skips_eval_ = false;
  double sleep_step_ = 0;
  double step_ = 0;
};

}  // namespace

DSLAUNCH_PLUGIN(Mistaken)
