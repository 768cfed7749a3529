#include "trainer/config/optimizer_config.h"

#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

using OptimizerType = OptimizerConfig::Type;

constexpr int64_t kMaxSteps = int64_t{1} << 40;

const std::map<std::string, OptimizerType> kOptimizers = {
    {"Adam", OptimizerType::kAdam},
    {"AdamW", OptimizerType::kAdamW},
    {"SGD", OptimizerType::kSgd},
    {"Adagrad", OptimizerType::kAdagrad},
    {"RMSprop", OptimizerType::kRmsprop},
    {"Lamb", OptimizerType::kLamb},
    {"Lion", OptimizerType::kLion},
    {"OneBitAdam", OptimizerType::kOneBitAdam},
    {"OneBitLamb", OptimizerType::kOneBitLamb},
    {"ZeroOneAdam", OptimizerType::kZeroOneAdam}};

constexpr char kNeedsMup[] = "needs a model that the Python library mup has parametrized; ";
const std::map<std::string, std::string> kRefusedOptimizers = {
    {"MuAdam", std::string(kNeedsMup) + "use Adam"},
    {"MuAdamW", std::string(kNeedsMup) + "use AdamW"},
    {"MuSGD", std::string(kNeedsMup) + "use SGD"},
    {"Muon",
     "needs a flag on every parameter, for which a configuration "
     "has no key; use AdamW"}};

template <typename Map>
auto FindIgnoringCase(const Map& map, const std::string& name) {
  return std::find_if(map.begin(), map.end(), [&](const auto& item) {
    return strcasecmp(item.first.c_str(), name.c_str()) == 0;
  });
}

// DeepSpeed reads its own optimizers' names in any case.
OptimizerType ParseType(JsonObject& object, std::string& name) {
  std::set<std::string> known;
  for (const auto& [word, type] : kOptimizers) known.insert(word);
  name = object.String("type").value_or("");
  if (const auto refused = FindIgnoringCase(kRefusedOptimizers, name);
      refused != kRefusedOptimizers.end()) {
    object.Fail("type", "is \"" + name + "\", which " + refused->second);
  }
  if (const auto found = FindIgnoringCase(kOptimizers, name); found != kOptimizers.end()) {
    return found->second;
  }
  object.Word("type", known);  // refuses it, with the known ones
  object.Fail("type", "is missing; for example Adam");
}

// PyTorch's keywords that choose how, not what, to compute; and the one that turns the sign.
void RefuseTorchKeywords(JsonObject& params) {
  params.RefuseUnlessOff({"foreach", "fused", "capturable", "differentiable"},
                         "selects one of PyTorch's implementations; dslaunch always uses "
                         "the fused ones; leave it out");
  params.RefuseUnlessOff({"maximize"}, "is not supported by dslaunch; negate the loss instead");
}

// A keyword of DeepSpeed's own optimizers for how memory is freed, which does not change results.
void AcceptSetGradNone(JsonObject& params) {
  if (!params.Bool("set_grad_none").value_or(true)) {
    params.Fail("set_grad_none", "is false, but dslaunch always frees gradients; leave it out");
  }
}

void ParseBetas(JsonObject& params, OptimizerConfig& optimizer) {
  if (const auto betas = params.Numbers("betas", 2, 0, 1)) {
    if ((*betas)[0] >= 1 || (*betas)[1] >= 1) params.Fail("betas", "must both be below 1");
    optimizer.beta1 = (*betas)[0];
    optimizer.beta2 = (*betas)[1];
  }
}

void ParseEps(JsonObject& params, OptimizerConfig& optimizer) {
  optimizer.eps = params.Number("eps", 0).value_or(optimizer.eps);
}

void ParseMomentum(JsonObject& params, OptimizerConfig& optimizer) {
  optimizer.momentum = params.Number("momentum", 0, 1).value_or(0);
}

void ParseAdam(JsonObject& params, OptimizerConfig& optimizer) {
  ParseBetas(params, optimizer);
  ParseEps(params, optimizer);
  const bool adam_w_mode = params.Bool("adam_w_mode").value_or(true);
  if (optimizer.type == OptimizerType::kAdamW && !adam_w_mode) {
    params.Fail("adam_w_mode", "is false, which contradicts AdamW; use the type Adam");
  }
  if (adam_w_mode) optimizer.type = OptimizerType::kAdamW;
  if (params.Bool("torch_adam").value_or(false)) {
    // torch.optim's class, with its own keywords and defaults.
    if (adam_w_mode) optimizer.weight_decay = 0.01;
    optimizer.amsgrad = params.Bool("amsgrad").value_or(false);
    RefuseTorchKeywords(params);
    return;
  }
  optimizer.bias_correction = params.Bool("bias_correction").value_or(true);
  AcceptSetGradNone(params);
  params.RefuseUnlessOff({"amsgrad"},
                         "needs \"torch_adam\": true; DeepSpeed's fused Adam does not have it");
}

void ParseSgd(JsonObject& params, OptimizerConfig& optimizer) {
  ParseMomentum(params, optimizer);
  optimizer.dampening = params.Number("dampening", 0, 1).value_or(0);
  optimizer.nesterov = params.Bool("nesterov").value_or(false);
  if (optimizer.nesterov && (optimizer.momentum == 0 || optimizer.dampening != 0)) {
    params.Fail("nesterov", "needs a momentum above 0 and a dampening of 0");
  }
  RefuseTorchKeywords(params);
}

void ParseAdagrad(JsonObject& params, OptimizerConfig& optimizer) {
  optimizer.lr = 1e-2;
  optimizer.eps = 1e-10;
  ParseEps(params, optimizer);
  optimizer.lr_decay = params.Number("lr_decay", 0).value_or(0);
  optimizer.initial_accumulator_value = params.Number("initial_accumulator_value", 0).value_or(0);
  RefuseTorchKeywords(params);
}

void ParseRmsprop(JsonObject& params, OptimizerConfig& optimizer) {
  optimizer.lr = 1e-2;
  ParseEps(params, optimizer);
  ParseMomentum(params, optimizer);
  optimizer.alpha = params.Number("alpha", 0, 1).value_or(optimizer.alpha);
  optimizer.centered = params.Bool("centered").value_or(false);
  RefuseTorchKeywords(params);
}

void ParseTrustRatio(JsonObject& params, OptimizerConfig& optimizer) {
  optimizer.max_coeff = params.Number("max_coeff", 0).value_or(optimizer.max_coeff);
  optimizer.min_coeff = params.Number("min_coeff", 0).value_or(optimizer.min_coeff);
  if (optimizer.min_coeff > optimizer.max_coeff) params.Fail("min_coeff", "is above max_coeff");
}

void ParseLamb(JsonObject& params, OptimizerConfig& optimizer) {
  ParseBetas(params, optimizer);
  ParseEps(params, optimizer);
  optimizer.bias_correction = params.Bool("bias_correction").value_or(true);
  optimizer.eps_inside_sqrt = params.Bool("eps_inside_sqrt").value_or(false);
  ParseTrustRatio(params, optimizer);
  params.RefuseUnlessOff({"amsgrad"}, "is not supported, as in DeepSpeed's LAMB; leave it out");
}

// DeepSpeed's keywords of 1-bit optimizers that choose its implementation, or that it does not use.
void AcceptOneBitKeywords(JsonObject& params) {
  (void)params.Bool("bias_correction");
  (void)params.Bool("cuda_aware");
  (void)params.String("comm_backend_name");
  (void)params.Bool("eps_inside_sqrt");
  params.RefuseUnlessOff({"amsgrad"}, "is not supported, as in DeepSpeed's; leave it out");
}

void ParseOneBitAdam(JsonObject& params, OptimizerConfig& optimizer) {
  ParseBetas(params, optimizer);
  ParseEps(params, optimizer);
  AcceptOneBitKeywords(params);
  optimizer.freeze_step = params.Int("freeze_step", 1, kMaxSteps).value_or(optimizer.freeze_step);
}

void ParseZeroOneAdam(JsonObject& params, OptimizerConfig& optimizer) {
  ParseBetas(params, optimizer);
  ParseEps(params, optimizer);
  AcceptOneBitKeywords(params);
  const auto read = [&params](const char* key, int64_t& value) {
    value = params.Int(key, 1, kMaxSteps).value_or(value);
  };
  read("var_freeze_step", optimizer.var_freeze_step);
  read("var_update_scaler", optimizer.var_update_scaler);
  read("local_step_scaler", optimizer.local_step_scaler);
  read("local_step_clipper", optimizer.local_step_clipper);
}

void ParseOneBitLamb(JsonObject& params, OptimizerConfig& optimizer) {
  ParseOneBitAdam(params, optimizer);
  ParseTrustRatio(params, optimizer);
  optimizer.coeff_beta = params.Number("coeff_beta", 0, 1).value_or(optimizer.coeff_beta);
  optimizer.factor_max = params.Number("factor_max", 0).value_or(optimizer.factor_max);
  optimizer.factor_min = params.Number("factor_min", 0).value_or(optimizer.factor_min);
  optimizer.factor_threshold =
      params.Number("factor_threshold", 0).value_or(optimizer.factor_threshold);
  if (optimizer.factor_min > optimizer.factor_max) params.Fail("factor_min", "is above factor_max");
}

void ParseLion(JsonObject& params, OptimizerConfig& optimizer) {
  ParseBetas(params, optimizer);
  AcceptSetGradNone(params);
}

void ParseParams(JsonObject params, OptimizerConfig& optimizer) {
  if (params.Number("max_grad_norm", 0).value_or(0) > 0) {
    params.Fail("max_grad_norm", "is not an optimizer setting; use engine.gradient_clipping");
  }
  switch (optimizer.type) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      ParseAdam(params, optimizer);
      break;
    case OptimizerType::kSgd:
      ParseSgd(params, optimizer);
      break;
    case OptimizerType::kAdagrad:
      ParseAdagrad(params, optimizer);
      break;
    case OptimizerType::kRmsprop:
      ParseRmsprop(params, optimizer);
      break;
    case OptimizerType::kLamb:
      ParseLamb(params, optimizer);
      break;
    case OptimizerType::kLion:
      ParseLion(params, optimizer);
      break;
    case OptimizerType::kOneBitAdam:
      ParseOneBitAdam(params, optimizer);
      break;
    case OptimizerType::kZeroOneAdam:
      ParseZeroOneAdam(params, optimizer);
      break;
    case OptimizerType::kOneBitLamb:
      ParseOneBitLamb(params, optimizer);
      break;
  }
  optimizer.lr = params.Number("lr", 0).value_or(optimizer.lr);
  optimizer.weight_decay = params.Number("weight_decay", 0).value_or(optimizer.weight_decay);
  params.RefuseUnknown();
}

ParameterGroupConfig ParseGroup(JsonObject object) {
  ParameterGroupConfig group;
  group.names = object.Strings("names");
  group.max_dims = object.Int("max_dims", 0);
  group.lr = object.Number("lr", 0);
  group.weight_decay = object.Number("weight_decay", 0);
  object.RefuseUnknown();
  if (group.names.empty() && !group.max_dims) {
    object.Fail("", "matches every parameter; it needs names or max_dims");
  }
  if (!group.lr && !group.weight_decay) {
    object.Fail("", "changes nothing; it needs lr or weight_decay");
  }
  return group;
}

// Where PyTorch's and DeepSpeed's constructors take the step to go on from; the start here, because
// a checkpoint says it.
void AcceptStart(JsonObject& params, const char* key) {
  if (params.Int(key, -1).value_or(-1) != -1) {
    params.Fail(key,
                "is not -1; the position of a resumed run comes from its checkpoint; leave it out");
  }
}

template <typename T>
T Required(const JsonObject& params, const char* key, std::optional<T> value) {
  if (!value) params.Fail(key, "is missing; this schedule needs it");
  return *value;
}

Warmup ParseWarmup(JsonObject& params) {
  Warmup warmup;
  warmup.num_steps = params.Int("warmup_num_steps", 0, kMaxSteps).value_or(warmup.num_steps);
  warmup.linear = params.Word("warmup_type", {"log", "linear"}).value_or("log") == "linear";
  return warmup;
}

bool HasAutoLength(const JsonObject& params) {
  return params.value().value("total_num_steps", nlohmann::json()) == "auto";
}

// 0 for "auto", which FitToRun replaces.
int64_t ParseTotalSteps(JsonObject& params) {
  if (params.IsAuto("total_num_steps")) return 0;
  return Required(params, "total_num_steps", params.Int("total_num_steps", 1, kMaxSteps));
}

WarmupLr ParseWarmupLr(JsonObject& params) {
  WarmupLr schedule;
  schedule.min_lr = params.Number("warmup_min_lr", 0).value_or(schedule.min_lr);
  schedule.max_lr = params.Number("warmup_max_lr", 0);
  schedule.warmup = ParseWarmup(params);
  return schedule;
}

WarmupDecayLr ParseWarmupDecayLr(JsonObject& params) {
  WarmupDecayLr schedule;
  schedule.min_lr = params.Number("warmup_min_lr", 0).value_or(schedule.min_lr);
  schedule.max_lr = params.Number("warmup_max_lr", 0).value_or(schedule.max_lr);
  schedule.warmup = ParseWarmup(params);
  schedule.total_num_steps = ParseTotalSteps(params);
  return schedule;
}

WarmupCosineLr ParseWarmupCosineLr(JsonObject& params) {
  WarmupCosineLr schedule;
  schedule.warmup_min_ratio =
      params.Number("warmup_min_ratio", 0).value_or(schedule.warmup_min_ratio);
  schedule.cos_min_ratio = params.Number("cos_min_ratio", 0).value_or(schedule.cos_min_ratio);
  schedule.warmup = ParseWarmup(params);
  schedule.total_num_steps = ParseTotalSteps(params);
  return schedule;
}

OneCycle ParseOneCycle(JsonObject& params, const OptimizerConfig& optimizer) {
  OneCycle cycle;
  cycle.min_lr = Required(params, "cycle_min_lr", params.Number("cycle_min_lr", 0));
  cycle.max_lr = Required(params, "cycle_max_lr", params.Number("cycle_max_lr", 0));
  cycle.first_step_size =
      params.Number("cycle_first_step_size", 0, kMaxSteps).value_or(cycle.first_step_size);
  if (cycle.first_step_size == 0) params.Fail("cycle_first_step_size", "is 0; it must be above 0");
  cycle.second_step_size =
      params.Number("cycle_second_step_size", 0, kMaxSteps).value_or(cycle.first_step_size);
  cycle.first_stairs = params.Int("cycle_first_stair_count", 0, kMaxSteps).value_or(0);
  cycle.second_stairs =
      params.Int("cycle_second_stair_count", 0, kMaxSteps).value_or(cycle.first_stairs);
  cycle.decay_step_size = params.Number("decay_step_size", 0).value_or(0);
  cycle.decay_lr_rate = params.Number("decay_lr_rate", 0).value_or(0);
  const std::optional<bool> cycle_momentum = params.Bool("cycle_momentum");
  if (cycle_momentum.value_or(false) && !optimizer.HasBetas()) {
    params.Fail("cycle_momentum",
                "is true, but " + optimizer.name + " has no betas to cycle; leave it out");
  }
  cycle.cycle_momentum = cycle_momentum.value_or(optimizer.HasBetas());
  cycle.min_momentum = params.Number("cycle_min_mom", 0, 1).value_or(cycle.min_momentum);
  cycle.max_momentum = params.Number("cycle_max_mom", 0, 1).value_or(cycle.max_momentum);
  cycle.decay_momentum_rate = params.Number("decay_mom_rate", 0).value_or(0);
  return cycle;
}

LrRangeTest ParseLrRangeTest(JsonObject& params) {
  LrRangeTest test;
  test.min_lr = params.Number("lr_range_test_min_lr", 0).value_or(test.min_lr);
  test.step_size = params.Int("lr_range_test_step_size", 1, kMaxSteps).value_or(test.step_size);
  test.step_rate = params.Number("lr_range_test_step_rate", 0).value_or(test.step_rate);
  test.staircase = params.Bool("lr_range_test_staircase").value_or(false);
  return test;
}

StepLr ParseStepLr(JsonObject& params) {
  StepLr schedule;
  schedule.step_size = Required(params, "step_size", params.Int("step_size", 1, kMaxSteps));
  schedule.gamma = params.Number("gamma", 0).value_or(schedule.gamma);
  return schedule;
}

CosineAnnealingLr ParseCosineAnnealingLr(JsonObject& params) {
  CosineAnnealingLr schedule;
  schedule.t_max = Required(params, "T_max", params.Int("T_max", 1, kMaxSteps));
  schedule.eta_min = params.Number("eta_min", 0).value_or(0);
  return schedule;
}

CosineAnnealingWarmRestarts ParseWarmRestarts(JsonObject& params) {
  constexpr int64_t kMaxFactor = 1 << 20;
  CosineAnnealingWarmRestarts schedule;
  schedule.t_0 = Required(params, "T_0", params.Int("T_0", 1, kMaxSteps));
  schedule.t_mult = params.Int("T_mult", 1, kMaxFactor).value_or(1);
  schedule.eta_min = params.Number("eta_min", 0).value_or(0);
  return schedule;
}

LrSchedule ParseSchedule(const std::string& type, JsonObject& params,
                         const OptimizerConfig& optimizer) {
  if (type == "WarmupLR") return ParseWarmupLr(params);
  if (type == "WarmupDecayLR") return ParseWarmupDecayLr(params);
  if (type == "WarmupCosineLR") return ParseWarmupCosineLr(params);
  if (type == "OneCycle") return ParseOneCycle(params, optimizer);
  if (type == "LRRangeTest") return ParseLrRangeTest(params);
  if (type == "StepLR") return ParseStepLr(params);
  if (type == "CosineAnnealingLR") return ParseCosineAnnealingLr(params);
  return ParseWarmRestarts(params);
}

// Whether a group's own learning rate has any effect.
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
  int64_t length = 0;  // of the schedule; 0: it has none
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
  const std::string says =
      "the warm-up of " + std::to_string(rises) + " steps (scheduler.params.warmup_num_steps) is ";
  char rate[32];
  if (steps && *steps <= rises) {
    std::snprintf(rate, sizeof rate, "%g", ScheduledLr(scheduler.schedule, lr, *steps - 1));
    return says + "not over after the run's " + std::to_string(*steps) +
           ": the learning rate of the last step is " + rate;
  }
  if (length > 0 && rises > length) {
    return says + "longer than the schedule of " + std::to_string(length) +
           " (total_num_steps): the learning rate rises until its end and then falls to its lowest "
           "at once, as in DeepSpeed";
  }
  return "";
}

OptimizerConfig ParseOptimizer(JsonObject object) {
  OptimizerConfig optimizer;
  optimizer.type = ParseType(object, optimizer.name);
  ParseParams(object.ObjectOrEmpty("params"), optimizer);
  for (const JsonObject& group : object.Objects("param_groups")) {
    optimizer.groups.push_back(ParseGroup(group));
  }
  object.RefuseUnlessOff({"legacy_fusion"},
                         "is an option of Apex, which dslaunch does not use; leave it out");
  object.RefuseUnknown();
  return optimizer;
}

SchedulerConfig ParseScheduler(JsonObject object, const OptimizerConfig& optimizer) {
  const std::optional<std::string> type =
      object.Word("type", {"CosineAnnealingLR", "CosineAnnealingWarmRestarts", "LRRangeTest",
                           "OneCycle", "StepLR", "WarmupCosineLR", "WarmupDecayLR", "WarmupLR"});
  if (!type) object.Fail("type", "is missing; for example WarmupLR");
  JsonObject params = object.ObjectOrEmpty("params");
  object.RefuseUnknown();
  SchedulerConfig scheduler{*type, ParseSchedule(*type, params, optimizer), HasAutoLength(params)};
  const bool from_torch = *type == "StepLR" || type->starts_with("CosineAnnealing");
  AcceptStart(params, from_torch ? "last_epoch" : "last_batch_iteration");
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

}  // namespace dslaunch
