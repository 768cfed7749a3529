// Learning rate schedules: pure functions of the number of optimizer updates made so far, so they
// have no state to save.
//
// Warmup*, OneCycle and LRRangeTest are DeepSpeed's, the others PyTorch's, with their names and
// formulas. `updates` is DeepSpeed's last_batch_iteration + 1 and PyTorch's last_epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace dslaunch {

// Rises from 0 to 1 over `num_steps` updates, logarithmically or linearly.
struct Warmup {
  int64_t num_steps = 1000;  // values below 2 count as 2
  bool linear = false;
};

// Returns the number of updates of the warm-up, at least 2.
int64_t WarmupSteps(const Warmup& warmup);

struct WarmupLr {
  double min_lr = 0;
  std::optional<double> max_lr = std::nullopt;  // nullopt: the optimizer's rate
  Warmup warmup = {};
};

// After the warm-up, falls to 0, which it would reach in update `total_num_steps`.
struct WarmupDecayLr {
  double min_lr = 0;
  double max_lr = 0.001;
  Warmup warmup = {};
  int64_t total_num_steps = 0;
};

// The rates are ratios of the optimizer's learning rate. The first update is made at a rate of 0.
struct WarmupCosineLr {
  double warmup_min_ratio = 0;
  double cos_min_ratio = 0.0001;
  Warmup warmup = {};
  int64_t total_num_steps = 0;
};

// Rises from min to max and falls again, while the momentum moves in the opposite direction; then
// decays.
struct OneCycle {
  double min_lr = 0, max_lr = 0;
  double first_step_size = 2000;   // updates of the rise, > 0
  double second_step_size = 2000;  // updates of the fall, >= 0
  int64_t first_stairs = 0;        // number of stairs; 0: smooth
  int64_t second_stairs = 0;
  double decay_step_size = 0;  // updates of one decay interval; 0: no decay
  double decay_lr_rate = 0;
  bool cycle_momentum = true;
  double min_momentum = 0.8, max_momentum = 0.9;
  double decay_momentum_rate = 0;
};

struct LrRangeTest {
  double min_lr = 0.001;
  int64_t step_size = 2000;
  double step_rate = 1.0;
  bool staircase = false;
};

struct StepLr {
  int64_t step_size = 0;
  double gamma = 0.1;
};

struct CosineAnnealingLr {
  int64_t t_max = 0;  // updates in which the rate falls from the optimizer's rate to eta_min
  double eta_min = 0;
};

struct CosineAnnealingWarmRestarts {
  int64_t t_0 = 0;     // updates before the first restart
  int64_t t_mult = 1;  // ratio of a cycle's length to the length of the previous one
  double eta_min = 0;
};

struct ConstantLr {};

using LrSchedule =
    std::variant<ConstantLr, WarmupLr, WarmupDecayLr, WarmupCosineLr, OneCycle, LrRangeTest, StepLr,
                 CosineAnnealingLr, CosineAnnealingWarmRestarts>;

// Returns the learning rate of the update after `updates` updates. `base_lr` is the optimizer's.
double ScheduledLr(const LrSchedule& schedule, double base_lr, int64_t updates);

// The second beta while a schedule changes the momentum, which is Adam's first beta.
constexpr double kOneCycleBeta2 = 0.99;

// Returns the momentum of the update after `updates` updates; nullopt if the schedule does not
// change it.
std::optional<double> ScheduledMomentum(const LrSchedule& schedule, int64_t updates);

}  // namespace dslaunch
