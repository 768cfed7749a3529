// Defines learning rate schedules. They are pure functions of the number of completed optimizer
// updates, so they have no state to save.
//
// Warmup*, OneCycle and LRRangeTest are DeepSpeed's schedules, the others are PyTorch's, with their
// names and formulas. `updates` equals DeepSpeed's last_batch_iteration + 1 and PyTorch's
// last_epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace dslaunch {

// A warm-up: a factor that rises from 0 to 1 over `num_steps` updates, logarithmically or linearly.
struct Warmup {
  int64_t num_steps = 1000;  // number of updates; a value below 2 counts as 2
  bool linear = false;
};

// Returns the number of updates of the warm-up, which is at least 2.
int64_t WarmupSteps(const Warmup& warmup);

struct WarmupLr {
  double min_lr = 0;
  // Rate after the warm-up; nullopt for the optimizer's rate.
  std::optional<double> max_lr = std::nullopt;
  Warmup warmup = {};
};

// A schedule that falls linearly to 0 after the warm-up and would reach 0 in update
// `total_num_steps`.
struct WarmupDecayLr {
  double min_lr = 0;
  double max_lr = 0.001;
  Warmup warmup = {};
  int64_t total_num_steps = 0;
};

// A warm-up followed by a cosine. The rates are ratios of the optimizer's learning rate. The first
// update has a rate of 0.
struct WarmupCosineLr {
  double warmup_min_ratio = 0;
  double cos_min_ratio = 0.0001;
  Warmup warmup = {};
  int64_t total_num_steps = 0;
};

// A cycle in which the rate rises from min to max and falls again, while the momentum moves in the
// opposite direction. A decay follows.
struct OneCycle {
  double min_lr = 0, max_lr = 0;
  double first_step_size = 2000;   // number of updates during the rise, more than 0
  double second_step_size = 2000;  // number of updates during the fall, at least 0
  int64_t first_stairs = 0;        // number of stairs during the rise; 0 for a smooth rise
  int64_t second_stairs = 0;
  double decay_step_size = 0;  // number of updates in a decay interval; 0 for no decay
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
  // Number of updates in which the rate falls from the optimizer's rate to eta_min.
  int64_t t_max = 0;
  double eta_min = 0;
};

struct CosineAnnealingWarmRestarts {
  int64_t t_0 = 0;     // number of updates before the first restart
  int64_t t_mult = 1;  // ratio of a cycle's length to the length of the previous cycle
  double eta_min = 0;
};

struct ConstantLr {};

using LrSchedule =
    std::variant<ConstantLr, WarmupLr, WarmupDecayLr, WarmupCosineLr, OneCycle, LrRangeTest, StepLr,
                 CosineAnnealingLr, CosineAnnealingWarmRestarts>;

// Returns the learning rate of the update that follows `updates` updates. `base_lr` is the
// optimizer's learning rate.
double ScheduledLr(const LrSchedule& schedule, double base_lr, int64_t updates);

// Adam's second beta while a schedule changes the momentum, which is Adam's first beta.
constexpr double kOneCycleBeta2 = 0.99;

// Returns the momentum of the update that follows `updates` updates; nullopt if the schedule does
// not change the momentum.
std::optional<double> ScheduledMomentum(const LrSchedule& schedule, int64_t updates);

}  // namespace dslaunch
