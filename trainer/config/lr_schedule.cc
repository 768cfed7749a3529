#include "trainer/config/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dslaunch {
namespace {

// Returns the progress of the warm-up from 0 to 1; nullopt after the warm-up. `t` counts from 0.
std::optional<double> WarmupProgress(const Warmup& warmup, int64_t t) {
  const int64_t steps = WarmupSteps(warmup);
  if (t >= steps) return std::nullopt;
  if (warmup.linear) return static_cast<double>(t) / static_cast<double>(steps);
  return std::log(static_cast<double>(t + 1)) / std::log(static_cast<double>(steps));
}

// Returns half a period of a cosine, which falls from 1 at progress 0 to 0 at progress 1.
double HalfCosine(double progress) { return (1 + std::cos(std::numbers::pi * progress)) / 2; }

double Ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// Returns the height in the cycle: 0 at the cycle's ends, 1 at its top.
double CycleHeight(const OneCycle& cycle, int64_t updates) {
  const double size = cycle.first_step_size + cycle.second_step_size;
  const double position = std::fmod(static_cast<double>(updates), size);
  const bool rising = position <= cycle.first_step_size;
  const double part = rising ? position : size - position;
  const double part_size = rising ? cycle.first_step_size : cycle.second_step_size;
  const int64_t stairs = rising ? cycle.first_stairs : cycle.second_stairs;
  if (stairs == 0) return part / part_size;
  const auto count = static_cast<double>(stairs);
  return std::floor(part * count / part_size) / count;
}

// Returns whether the update number `updates` belongs to the cycle, rather than to the decay after
// the cycle.
bool InCycle(const OneCycle& cycle, int64_t updates) {
  return static_cast<double>(updates - 1) < cycle.first_step_size + cycle.second_step_size;
}

// Returns the factor by which decay with `rate` has changed a value since the end of the cycle.
double DecayFactor(const OneCycle& cycle, double rate, int64_t updates) {
  if (cycle.decay_step_size == 0) return 1;
  const double size = cycle.first_step_size + cycle.second_step_size;
  return 1 + rate * ((static_cast<double>(updates) - size) / cycle.decay_step_size);
}

struct LrAt {
  double base_lr;
  int64_t updates;

  double operator()(const ConstantLr&) const { return base_lr; }

  double operator()(const WarmupLr& s) const {
    if (updates == 0) return s.min_lr;
    const double progress = WarmupProgress(s.warmup, updates - 1).value_or(1);
    return s.min_lr + (s.max_lr.value_or(base_lr) - s.min_lr) * progress;
  }

  double operator()(const WarmupDecayLr& s) const {
    if (updates == 0) return s.min_lr;
    const int64_t t = updates - 1;
    const std::optional<double> progress = WarmupProgress(s.warmup, t);
    const int64_t decay_steps = std::max<int64_t>(1, s.total_num_steps - WarmupSteps(s.warmup));
    const double height =
        progress ? *progress : std::max(0.0, Ratio(s.total_num_steps - t, decay_steps));
    return s.min_lr + (s.max_lr - s.min_lr) * height;
  }

  double operator()(const WarmupCosineLr& s) const {
    if (updates == 0) return 0;
    const int64_t t = updates - 1;
    if (const std::optional<double> progress = WarmupProgress(s.warmup, t)) {
      return base_lr * (s.warmup_min_ratio + *progress * (1 - s.warmup_min_ratio));
    }
    const int64_t steps = WarmupSteps(s.warmup);
    const double progress =
        std::min(1.0, Ratio(t - steps + 1, std::max<int64_t>(1, s.total_num_steps - steps)));
    return base_lr * std::max(0.0, s.cos_min_ratio + (1 - s.cos_min_ratio) * HalfCosine(progress));
  }

  double operator()(const OneCycle& s) const {
    if (updates == 0) return s.min_lr;
    if (InCycle(s, updates)) return s.min_lr + (s.max_lr - s.min_lr) * CycleHeight(s, updates);
    return s.min_lr / DecayFactor(s, s.decay_lr_rate, updates);
  }

  double operator()(const LrRangeTest& s) const {
    const double intervals = Ratio(updates, s.step_size);
    return s.min_lr * (1 + s.step_rate * (s.staircase ? std::floor(intervals) : intervals));
  }

  double operator()(const StepLr& s) const {
    return base_lr * std::pow(s.gamma, static_cast<double>(updates / s.step_size));
  }

  double operator()(const CosineAnnealingLr& s) const {
    return s.eta_min + (base_lr - s.eta_min) * HalfCosine(Ratio(updates, s.t_max));
  }

  double operator()(const CosineAnnealingWarmRestarts& s) const {
    int64_t length = s.t_0;
    int64_t position = updates;
    if (s.t_mult == 1) position %= length;
    for (; position >= length; length *= s.t_mult) position -= length;
    return s.eta_min + (base_lr - s.eta_min) * HalfCosine(Ratio(position, length));
  }
};

}  // namespace

int64_t WarmupSteps(const Warmup& warmup) { return std::max<int64_t>(2, warmup.num_steps); }

double ScheduledLr(const LrSchedule& schedule, double base_lr, int64_t updates) {
  return std::visit(LrAt{base_lr, updates}, schedule);
}

std::optional<double> ScheduledMomentum(const LrSchedule& schedule, int64_t updates) {
  const auto* cycle = std::get_if<OneCycle>(&schedule);
  if (cycle == nullptr || !cycle->cycle_momentum) return std::nullopt;
  if (updates == 0) return cycle->min_momentum;
  if (InCycle(*cycle, updates)) {
    return cycle->max_momentum -
           (cycle->max_momentum - cycle->min_momentum) * CycleHeight(*cycle, updates);
  }
  return cycle->max_momentum * DecayFactor(*cycle, cycle->decay_momentum_rate, updates);
}

}  // namespace dslaunch
