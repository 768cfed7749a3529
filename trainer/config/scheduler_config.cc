#include "trainer/config/scheduler_config.h"

#include <algorithm>
#include <cstdio>

#include "trainer/config/json/key_table.h"

namespace dslaunch {
namespace {

constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr char kFraction[] = "fraction of the optimizer's learning rate";
constexpr char kNeeded[] = "is missing; this schedule needs it";

// Returns the row for total_num_steps; "auto" is read as 0, which FitToRun replaces.
template <class Schedule>
KeyRow<Schedule> TotalStepsKey() {
  return Required<Schedule>({"total_num_steps",
                             [](JsonObject& params, const char* key, Schedule& schedule) {
                               if (params.value().value(key, nlohmann::json()) == "auto") {
                                 params.Ignore({key});
                               } else {
                                 schedule.total_num_steps =
                                     params.Int(key, 1, kMaxSteps).value_or(0);
                               }
                             },
                             [](const Schedule& schedule) { return schedule.total_num_steps; },
                             "required; `auto`: the length of the run"},
                            kNeeded);
}

template <class Schedule>
KeyTable<Schedule> WarmupKeys() {
  return Within(&Schedule::warmup,
                KeyTable<Warmup>{IntKey("warmup_num_steps", &Warmup::num_steps, {0, kMaxSteps}, ""),
                                 WordKey("warmup_type", &Warmup::linear, {"log", "linear"}, "")});
}

// Returns the keys of a schedule in "params". The argument only selects the schedule.
KeyTable<ConstantLr> ScheduleKeys(const ConstantLr&) { return {}; }

KeyTable<WarmupLr> ScheduleKeys(const WarmupLr&) {
  return Joined<WarmupLr>({{NumberKey("warmup_min_lr", &WarmupLr::min_lr, {0}, ""),
                            NumberKey("warmup_max_lr", &WarmupLr::max_lr, {0},
                                      "default: the optimizer's; WarmupDecayLR: 0.001")},
                           WarmupKeys<WarmupLr>()});
}

KeyTable<WarmupDecayLr> ScheduleKeys(const WarmupDecayLr&) {
  using S = WarmupDecayLr;
  return Joined<S>({{NumberKey("warmup_min_lr", &S::min_lr, {0}, ""),
                     NumberKey("warmup_max_lr", &S::max_lr, {0}, "")},
                    WarmupKeys<S>(),
                    {TotalStepsKey<S>()}});
}

KeyTable<WarmupCosineLr> ScheduleKeys(const WarmupCosineLr&) {
  using S = WarmupCosineLr;
  return Joined<S>({{NumberKey("warmup_min_ratio", &S::warmup_min_ratio, {0}, kFraction),
                     NumberKey("cos_min_ratio", &S::cos_min_ratio, {0}, kFraction)},
                    WarmupKeys<S>(),
                    {TotalStepsKey<S>()}});
}

KeyTable<OneCycle> ScheduleKeys(const OneCycle&) {
  using S = OneCycle;
  return {Required(NumberKey("cycle_min_lr", &S::min_lr, {0}, "required"), kNeeded),
          Required(NumberKey("cycle_max_lr", &S::max_lr, {0}, "required"), kNeeded),
          NumberKey("cycle_first_step_size", &S::first_step_size, {0, kMaxSteps},
                    "updates in the rising phase; above 0"),
          NumberKey("cycle_second_step_size", &S::second_step_size, {0, kMaxSteps},
                    "updates in the falling phase; default: as in the rising phase"),
          IntKey("cycle_first_stair_count", &S::first_stairs, {0, kMaxSteps},
                 "number of stairs in the rising phase; 0: smooth"),
          IntKey("cycle_second_stair_count", &S::second_stairs, {0, kMaxSteps},
                 "default: as in the rising phase"),
          NumberKey("decay_step_size", &S::decay_step_size, {0},
                    "updates of one decay interval; 0: no decay"),
          NumberKey("decay_lr_rate", &S::decay_lr_rate, {0}, ""),
          BoolKey("cycle_momentum", &S::cycle_momentum,
                  "cycle the first beta in the opposite direction; default true if the optimizer "
                  "has betas"),
          NumberKey("cycle_min_mom", &S::min_momentum, {0, 1}, ""),
          NumberKey("cycle_max_mom", &S::max_momentum, {0, 1}, ""),
          NumberKey("decay_mom_rate", &S::decay_momentum_rate, {0}, "")};
}

KeyTable<LrRangeTest> ScheduleKeys(const LrRangeTest&) {
  using S = LrRangeTest;
  return {NumberKey("lr_range_test_min_lr", &S::min_lr, {0}, ""),
          IntKey("lr_range_test_step_size", &S::step_size, {1, kMaxSteps}, ""),
          NumberKey("lr_range_test_step_rate", &S::step_rate, {0}, ""),
          BoolKey("lr_range_test_staircase", &S::staircase, "")};
}

KeyTable<StepLr> ScheduleKeys(const StepLr&) {
  return {Required(IntKey("step_size", &StepLr::step_size, {1, kMaxSteps},
                          "required; updates between two changes"),
                   kNeeded),
          NumberKey("gamma", &StepLr::gamma, {0}, "factor of each change")};
}

KeyTable<CosineAnnealingLr> ScheduleKeys(const CosineAnnealingLr&) {
  using S = CosineAnnealingLr;
  return {Required(IntKey("T_max", &S::t_max, {1, kMaxSteps},
                          "required; updates until the rate is `eta_min`"),
                   kNeeded),
          NumberKey("eta_min", &S::eta_min, {0}, "")};
}

KeyTable<CosineAnnealingWarmRestarts> ScheduleKeys(const CosineAnnealingWarmRestarts&) {
  using S = CosineAnnealingWarmRestarts;
  return {
      Required(IntKey("T_0", &S::t_0, {1, kMaxSteps}, "required; updates before the first restart"),
               kNeeded),
      IntKey("T_mult", &S::t_mult, {1, 1 << 20},
             "factor by which each cycle is longer than the one before"),
      NumberKey("eta_min", &S::eta_min, {0}, "")};
}

template <class Schedule>
LrSchedule ReadSchedule(JsonObject& params) {
  return ReadKeys(params, ScheduleKeys(Schedule()));
}

// Keys for the step to resume from, in the constructors of DeepSpeed and PyTorch.
constexpr char kDeepSpeedStart[] = "last_batch_iteration";
constexpr char kTorchStart[] = "last_epoch";

struct KnownSchedule {
  const char* type;
  LrSchedule (*read)(JsonObject& params);
  const char* start_key;
};

constexpr KnownSchedule kKnownSchedules[] = {
    {"WarmupLR", ReadSchedule<WarmupLr>, kDeepSpeedStart},
    {"WarmupDecayLR", ReadSchedule<WarmupDecayLr>, kDeepSpeedStart},
    {"WarmupCosineLR", ReadSchedule<WarmupCosineLr>, kDeepSpeedStart},
    {"OneCycle", ReadSchedule<OneCycle>, kDeepSpeedStart},
    {"LRRangeTest", ReadSchedule<LrRangeTest>, kDeepSpeedStart},
    {"StepLR", ReadSchedule<StepLr>, kTorchStart},
    {"CosineAnnealingLR", ReadSchedule<CosineAnnealingLr>, kTorchStart},
    {"CosineAnnealingWarmRestarts", ReadSchedule<CosineAnnealingWarmRestarts>, kTorchStart}};

bool HasAutoLength(const JsonObject& params) {
  return params.value().value("total_num_steps", nlohmann::json()) == "auto";
}

// Sets defaults that depend on other keys and on the optimizer.
void CompleteCycle(const JsonObject& params, const OptimizerConfig& optimizer, OneCycle& cycle) {
  if (cycle.first_step_size == 0) params.Fail("cycle_first_step_size", "is 0; it must be above 0");
  if (!params.Has("cycle_second_step_size")) cycle.second_step_size = cycle.first_step_size;
  if (!params.Has("cycle_second_stair_count")) cycle.second_stairs = cycle.first_stairs;
  if (!params.Has("cycle_momentum")) cycle.cycle_momentum = optimizer.HasBetas();
  if (cycle.cycle_momentum && !optimizer.HasBetas()) {
    params.Fail("cycle_momentum",
                "is true, but " + optimizer.name + " has no betas to cycle; leave it out");
  }
}

// Accepts only -1, the start. PyTorch and DeepSpeed take the step to resume from from this key, but
// here a checkpoint supplies it.
void AcceptStart(JsonObject& params, const char* key) {
  const int64_t start = params.Int(key, -1).value_or(-1);
  ExplainLastKey("only -1 is accepted: the position of a resumed run comes from its checkpoint");
  if (start != -1) {
    params.Fail(key,
                "is not -1; the position of a resumed run comes from its checkpoint; leave it out");
  }
}

// Returns whether a parameter group's own learning rate has any effect.
bool UsesOptimizersLr(const LrSchedule& schedule) {
  if (const auto* warmup = std::get_if<WarmupLr>(&schedule)) return !warmup->max_lr;
  return !std::holds_alternative<WarmupDecayLr>(schedule) &&
         !std::holds_alternative<OneCycle>(schedule) &&
         !std::holds_alternative<LrRangeTest>(schedule);
}

}  // namespace

void FitToRun(SchedulerConfig& scheduler, int64_t steps) {
  if (!scheduler.fits_run) return;
  if (auto* const decay = std::get_if<WarmupDecayLr>(&scheduler.schedule)) {
    decay->total_num_steps = steps;
  }
  if (auto* const cosine = std::get_if<WarmupCosineLr>(&scheduler.schedule)) {
    cosine->total_num_steps = steps;
  }
}

std::string WarmupRemark(const SchedulerConfig& scheduler, double lr,
                         std::optional<int64_t> steps) {
  const Warmup* warmup = nullptr;
  int64_t length = 0;  // number of steps in the schedule; 0 if unlimited
  if (const auto* const only = std::get_if<WarmupLr>(&scheduler.schedule)) {
    warmup = &only->warmup;
  } else if (const auto* const decay = std::get_if<WarmupDecayLr>(&scheduler.schedule)) {
    warmup = &decay->warmup;
    length = decay->total_num_steps;
  } else if (const auto* const cosine = std::get_if<WarmupCosineLr>(&scheduler.schedule)) {
    warmup = &cosine->warmup;
    length = cosine->total_num_steps;
  }
  if (warmup == nullptr) return "";
  const int64_t rises = WarmupSteps(*warmup);
  const std::string start =
      "the warm-up of " + std::to_string(rises) + " steps (scheduler.params.warmup_num_steps) is ";
  char rate[32];
  if (steps && *steps <= rises) {
    std::snprintf(rate, sizeof rate, "%g", ScheduledLr(scheduler.schedule, lr, *steps - 1));
    return start + "not over after the run's " + std::to_string(*steps) +
           ": the learning rate of the last step is " + rate;
  }
  if (length > 0 && rises > length) {
    return start + "longer than the schedule of " + std::to_string(length) +
           " (total_num_steps): the learning rate rises until its end and then falls to its lowest "
           "at once, as in DeepSpeed";
  }
  return "";
}

SchedulerConfig ParseScheduler(JsonObject object, const OptimizerConfig& optimizer) {
  std::set<std::string> types;
  for (const KnownSchedule& known : kKnownSchedules) types.insert(known.type);
  const std::optional<std::string> type = object.Word("type", types);
  ExplainLastKey("required; schedules of DeepSpeed and PyTorch, with the same formulas");
  if (!type) object.Fail("type", "is missing; for example WarmupLR");
  JsonObject params = object.ObjectOrEmpty("params", "Settings of the schedule.");
  object.RefuseUnknown();
  const KnownSchedule& known = *std::ranges::find(kKnownSchedules, *type, &KnownSchedule::type);
  SchedulerConfig scheduler{*type, known.read(params), HasAutoLength(params)};
  if (auto* const cycle = std::get_if<OneCycle>(&scheduler.schedule)) {
    CompleteCycle(params, optimizer, *cycle);
  }
  AcceptStart(params, known.start_key);
  params.RefuseUnknown();
  const bool groups_have_lr =
      std::any_of(optimizer.groups.begin(), optimizer.groups.end(),
                  [](const ParameterGroupConfig& group) { return group.lr.has_value(); });
  if (groups_have_lr && !UsesOptimizersLr(scheduler.schedule)) {
    object.Fail("",
                "gives all parameters one learning rate, so the lr of a group in "
                "engine.optimizer.param_groups would be lost; remove one of them");
  }
  return scheduler;
}

nlohmann::ordered_json ShowScheduler(const SchedulerConfig& scheduler) {
  if (scheduler.name.empty()) return nullptr;
  return {
      {"type", scheduler.name},
      {"params",
       std::visit([](const auto& schedule) { return ShowKeys(ScheduleKeys(schedule), schedule); },
                  scheduler.schedule)}};
}

}  // namespace dslaunch
