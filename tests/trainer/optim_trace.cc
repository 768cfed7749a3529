// Runs one part of the optimizers at a time, for comparison with PyTorch. Reads JSON objects, one
// per line, and answers each with a JSON array on one line.
//
//   {"optimizer": SECTION, "scheduler": SECTION?, "lr": N}      [learning rate, betas[0]?] of
// the
//                                                               first N updates
//   {"optimizer": SECTION, "scheduler": SECTION?, "steps": N}   the final values of the parameters
//   {"scaler": {...}, "overflows": [0, 1, ...]}                 [scale, gave up] after each try
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "trainer/config/json/json_object.h"
#include "trainer/config/scheduler_config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/precision/loss_scaler.h"

namespace dslaunch {
namespace {

using nlohmann::json;

json Rates(const OptimizerConfig& optimizer, const LrSchedule& schedule, int64_t count) {
  json rates = json::array();
  for (int64_t updates = 0; updates < count; ++updates) {
    json at = {ScheduledLr(schedule, optimizer.lr, updates)};
    if (const auto momentum = ScheduledMomentum(schedule, updates)) at.push_back(*momentum);
    rates.push_back(at);
  }
  return rates;
}

// Returns the parameters after `steps` updates. Draws parameters and gradients as optim_test.py
// does.
json Train(const OptimizerConfig& config, const LrSchedule& schedule, int64_t steps) {
  at::manual_seed(11);
  std::vector<NamedTensor> parameters = {
      {"fc.weight", at::randn({7, 5})}, {"fc.bias", at::randn({5})}, {"zero", at::zeros({4})}};
  for (NamedTensor& parameter : parameters) parameter.tensor.requires_grad_();
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config, schedule, parameters);
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<at::Tensor> gradients;
    for (const NamedTensor& parameter : parameters) {
      gradients.push_back(at::randn(parameter.tensor.sizes()));
    }
    optimizer->Step(gradients);
  }
  json values = json::array();
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor flat = parameter.tensor.detach().flatten();
    for (int64_t i = 0; i < flat.numel(); ++i) values.push_back(flat[i].item<double>());
  }
  return values;
}

json Scales(const json& wanted, const json& overflows) {
  LossScalerConfig config;
  config.dynamic = wanted.at("dynamic");
  config.static_scale = wanted.at("static_scale");
  config.initial_scale_power = wanted.at("initial_scale_power");
  config.loss_scale_window = wanted.at("loss_scale_window");
  config.hysteresis = wanted.at("hysteresis");
  config.consecutive_hysteresis = wanted.at("consecutive_hysteresis");
  config.min_loss_scale = wanted.at("min_loss_scale");
  config.raise_error_at_min_scale = wanted.at("raise_error_at_min_scale");
  LossScalerState state = InitialLossScalerState(config);
  json trace = json::array();
  for (const json& overflow : overflows) {
    const LossScaleDecision decision = UpdateLossScale(config, state, overflow == 1);
    state = decision.next;
    trace.push_back({state.scale, decision.give_up});
  }
  return trace;
}

json Answer(const json& asked) {
  if (asked.contains("scaler")) return Scales(asked["scaler"], asked["overflows"]);
  const OptimizerConfig optimizer = ParseOptimizer({asked.at("optimizer"), "asked", "optimizer"});
  LrSchedule schedule;
  if (asked.contains("scheduler")) {
    schedule = ParseScheduler({asked["scheduler"], "asked", "scheduler"}, optimizer).schedule;
  }
  if (asked.contains("lr")) return Rates(optimizer, schedule, asked["lr"]);
  return Train(optimizer, schedule, asked.at("steps"));
}

}  // namespace
}  // namespace dslaunch

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << dslaunch::Answer(nlohmann::json::parse(line)).dump() << '\n';
  }
}
