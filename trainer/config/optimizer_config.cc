#include "trainer/config/optimizer_config.h"

#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "trainer/config/json/key_table.h"

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

// Reads the type of the optimizer. Like DeepSpeed, accepts the names of DeepSpeed's own optimizers
// in any case.
OptimizerType ParseType(JsonObject& object, std::string& name) {
  std::set<std::string> known;
  for (const auto& [word, type] : kOptimizers) known.insert(word);
  name = object.String("type").value_or("");
  ExplainLastKey(
      "required; Adam, AdamW, SGD, Adagrad, RMSprop, Lamb, Lion, OneBitAdam, ZeroOneAdam or "
      "OneBitLamb, in any case");
  if (const auto refused = FindIgnoringCase(kRefusedOptimizers, name);
      refused != kRefusedOptimizers.end()) {
    object.Fail("type", "is \"" + name + "\", which " + refused->second);
  }
  if (const auto found = FindIgnoringCase(kOptimizers, name); found != kOptimizers.end()) {
    return found->second;
  }
  object.Word("type", known);  // throws an error that lists the known types
  object.Fail("type", "is missing; for example Adam");
}

// Refuses PyTorch's keywords that only choose an implementation, and `maximize`, which changes the
// sign of the gradient.
void RefuseTorchKeywords(JsonObject& params) {
  params.RefuseUnlessOff({"foreach", "fused", "capturable", "differentiable"},
                         "selects one of PyTorch's implementations; dslaunch always uses "
                         "the fused ones; leave it out");
  params.RefuseUnlessOff({"maximize"}, "is not supported by dslaunch; negate the loss instead");
}

KeyRow<OptimizerConfig> BetasKey() {
  return {"betas",
          [](JsonObject& params, const char* key, OptimizerConfig& optimizer) {
            const auto betas = params.Numbers(key, 2, 0, 1);
            if (!betas) return;
            if ((*betas)[0] >= 1 || (*betas)[1] >= 1) params.Fail(key, "must both be below 1");
            optimizer.beta1 = (*betas)[0];
            optimizer.beta2 = (*betas)[1];
          },
          [](const OptimizerConfig& optimizer) {
            return nlohmann::ordered_json{optimizer.beta1, optimizer.beta2};
          },
          "both below 1"};
}

KeyRow<OptimizerConfig> EpsKey() {
  return NumberKey("eps", &OptimizerConfig::eps, {0}, "default 1e-8; Adagrad: 1e-10");
}

KeyRow<OptimizerConfig> MomentumKey() {
  return NumberKey("momentum", &OptimizerConfig::momentum, {0, 1}, "");
}

KeyRow<OptimizerConfig> BiasCorrectionKey() {
  return BoolKey("bias_correction", &OptimizerConfig::bias_correction,
                 "default true; not with `torch_adam`; 1-bit optimizers have none, as in "
                 "DeepSpeed");
}

KeyRow<OptimizerConfig> EpsInsideSqrtKey() {
  return BoolKey("eps_inside_sqrt", &OptimizerConfig::eps_inside_sqrt,
                 "default false; no effect on 1-bit optimizers, as in DeepSpeed");
}

KeyRow<OptimizerConfig> AdamWModeKey() {
  return {"adam_w_mode",
          [](JsonObject& params, const char* key, OptimizerConfig& optimizer) {
            const bool decoupled = params.Bool(key).value_or(true);
            if (optimizer.type == OptimizerType::kAdamW && !decoupled) {
              params.Fail(key, "is false, which contradicts AdamW; use the type Adam");
            }
            if (decoupled) optimizer.type = OptimizerType::kAdamW;
          },
          [](const OptimizerConfig& optimizer) { return optimizer.type == OptimizerType::kAdamW; },
          "decoupled weight decay; default true, also for Adam, as in DeepSpeed"};
}

KeyTable<OptimizerConfig> TrustRatioKeys() {
  return {
      NumberKey("max_coeff", &OptimizerConfig::max_coeff, {0}, "upper limit of the trust ratio"),
      NumberKey("min_coeff", &OptimizerConfig::min_coeff, {0}, "lower limit of the trust ratio")};
}

// Returns the keys that choose DeepSpeed's implementation of 1-bit optimizers, or that DeepSpeed
// does not use.
KeyTable<OptimizerConfig> OneBitKeys() {
  return {BetasKey(),
          EpsKey(),
          OlderName(BiasCorrectionKey()),
          IgnoredBool<OptimizerConfig>("cuda_aware"),
          {"comm_backend_name",
           [](JsonObject& params, const char* key, OptimizerConfig&) { (void)params.String(key); },
           nullptr, kNoEffect},
          OlderName(EpsInsideSqrtKey())};
}

KeyRow<OptimizerConfig> FreezeStepKey() {
  return IntKey("freeze_step", &OptimizerConfig::freeze_step, {1, kMaxSteps},
                "updates with whole gradients; after them the variance stays, and 1 bit of each "
                "element of the momentum travels");
}

// Returns the keys of a type in "params", without the keys that all types have.
KeyTable<OptimizerConfig> KeysOfType(OptimizerType type) {
  switch (type) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      return {BetasKey(), EpsKey(), AdamWModeKey()};
    case OptimizerType::kSgd:
      return {MomentumKey(), NumberKey("dampening", &OptimizerConfig::dampening, {0, 1}, ""),
              BoolKey("nesterov", &OptimizerConfig::nesterov,
                      "needs a momentum above 0 and a dampening of 0")};
    case OptimizerType::kAdagrad:
      return {EpsKey(), NumberKey("lr_decay", &OptimizerConfig::lr_decay, {0}, ""),
              NumberKey("initial_accumulator_value", &OptimizerConfig::initial_accumulator_value,
                        {0}, "")};
    case OptimizerType::kRmsprop:
      return {EpsKey(), MomentumKey(), NumberKey("alpha", &OptimizerConfig::alpha, {0, 1}, ""),
              BoolKey("centered", &OptimizerConfig::centered, "")};
    case OptimizerType::kLamb:
      return Joined<OptimizerConfig>(
          {{BetasKey(), EpsKey(), BiasCorrectionKey(), EpsInsideSqrtKey()}, TrustRatioKeys()});
    case OptimizerType::kLion:
      return {BetasKey()};
    case OptimizerType::kOneBitAdam:
      return Joined<OptimizerConfig>({OneBitKeys(), {FreezeStepKey()}});
    case OptimizerType::kZeroOneAdam:
      return Joined<OptimizerConfig>(
          {OneBitKeys(),
           {IntKey("var_freeze_step", &OptimizerConfig::var_freeze_step, {1, kMaxSteps},
                   "updates after which the variance stays"),
            IntKey("var_update_scaler", &OptimizerConfig::var_update_scaler, {1, kMaxSteps},
                   "after this many updates of the variance the interval between them doubles"),
            IntKey("local_step_scaler", &OptimizerConfig::local_step_scaler, {1, kMaxSteps},
                   "after this many steps the interval between two exchanges doubles"),
            IntKey("local_step_clipper", &OptimizerConfig::local_step_clipper, {1, kMaxSteps},
                   "the longest interval between two exchanges, in steps")}});
    case OptimizerType::kOneBitLamb:
      return Joined<OptimizerConfig>(
          {OneBitKeys(),
           {FreezeStepKey()},
           TrustRatioKeys(),
           {NumberKey("coeff_beta", &OptimizerConfig::coeff_beta, {0, 1},
                      "decay of the average trust ratio"),
            NumberKey("factor_max", &OptimizerConfig::factor_max, {0},
                      "upper limit of the factor on the frozen trust ratio"),
            NumberKey("factor_min", &OptimizerConfig::factor_min, {0}, "lower limit of that"),
            NumberKey("factor_threshold", &OptimizerConfig::factor_threshold, {0},
                      "largest relative change of that from step to step")}});
  }
  std::abort();
}

// Returns the keys of one of Adam's implementations: the class in torch.optim, with its own
// keywords and defaults, or DeepSpeed's.
KeyTable<OptimizerConfig> AdamKeys(bool torch_adam) {
  if (torch_adam)
    return {BoolKey("amsgrad", &OptimizerConfig::amsgrad, "default false; with `torch_adam` only")};
  return {BiasCorrectionKey()};
}

KeyTable<OptimizerConfig> SharedKeys() {
  return {NumberKey("lr", &OptimizerConfig::lr, {0}, "default 0.001; Adagrad and RMSprop: 0.01"),
          NumberKey("weight_decay", &OptimizerConfig::weight_decay, {0},
                    "default 0; AdamW with `torch_adam`: 0.01")};
}

// Accepts DeepSpeed's keyword for freeing memory, which does not change results.
void AcceptSetGradNone(JsonObject& params) {
  const bool set = params.Bool("set_grad_none").value_or(true);
  ExplainLastKey("only true is accepted");
  if (!set) {
    params.Fail("set_grad_none", "is false, but dslaunch always frees gradients; leave it out");
  }
}

void ReadAdamImplementation(JsonObject& params, OptimizerConfig& optimizer) {
  const bool torch_adam = params.Bool("torch_adam").value_or(false);
  ExplainLastKey("use the semantics, keywords and defaults of torch.optim's class; default false");
  if (torch_adam && optimizer.type == OptimizerType::kAdamW) optimizer.weight_decay = 0.01;
  ReadKeys(params, AdamKeys(torch_adam), optimizer);
  if (torch_adam) return RefuseTorchKeywords(params);
  AcceptSetGradNone(params);
  params.RefuseUnlessOff({"amsgrad"},
                         "needs \"torch_adam\": true; DeepSpeed's fused Adam does not have it");
}

// Refuses keys and combinations of values that the optimizer's type does not support.
void CheckParams(JsonObject& params, const OptimizerConfig& optimizer) {
  const bool from_torch = optimizer.type == OptimizerType::kSgd ||
                          optimizer.type == OptimizerType::kAdagrad ||
                          optimizer.type == OptimizerType::kRmsprop;
  if (from_torch) RefuseTorchKeywords(params);
  if (optimizer.type == OptimizerType::kLion) AcceptSetGradNone(params);
  if (optimizer.type == OptimizerType::kLamb) {
    params.RefuseUnlessOff({"amsgrad"}, "is not supported, as in DeepSpeed's LAMB; leave it out");
  }
  if (optimizer.CompressesExchanges()) {
    params.RefuseUnlessOff({"amsgrad"}, "is not supported, as in DeepSpeed's; leave it out");
  }
  if (optimizer.nesterov && (optimizer.momentum == 0 || optimizer.dampening != 0)) {
    params.Fail("nesterov", "needs a momentum above 0 and a dampening of 0");
  }
  if (optimizer.min_coeff > optimizer.max_coeff) params.Fail("min_coeff", "is above max_coeff");
  if (optimizer.factor_min > optimizer.factor_max) params.Fail("factor_min", "is above factor_max");
}

void ReadParams(JsonObject params, OptimizerConfig& optimizer) {
  const double norm = params.Number("max_grad_norm", 0).value_or(0);
  ExplainLastKey("only 0, no limit, is accepted: the limit is `gradient_clipping`");
  if (norm > 0) {
    params.Fail("max_grad_norm", "is not an optimizer setting; use engine.gradient_clipping");
  }
  if (optimizer.type == OptimizerType::kAdagrad) optimizer.eps = 1e-10;
  if (optimizer.type == OptimizerType::kAdagrad || optimizer.type == OptimizerType::kRmsprop) {
    optimizer.lr = 1e-2;
  }
  ReadKeys(params, KeysOfType(optimizer.type), optimizer);
  if (optimizer.IsAdam()) ReadAdamImplementation(params, optimizer);
  CheckParams(params, optimizer);
  ReadKeys(params, SharedKeys(), optimizer);
  params.RefuseUnknown();
}

const KeyTable<ParameterGroupConfig>& GroupKeys() {
  using G = ParameterGroupConfig;
  static const KeyTable<G> kKeys = {
      TextsKey("names", &G::names, "shell patterns that match parameter names"),
      IntKey("max_dims", &G::max_dims, {0}, "matches tensors with at most this many dimensions"),
      NumberKey("lr", &G::lr, {0}, "value for this group; default: the optimizer's"),
      NumberKey("weight_decay", &G::weight_decay, {0},
                "value for this group; default: the optimizer's")};
  return kKeys;
}

ParameterGroupConfig ParseGroup(JsonObject object) {
  const ParameterGroupConfig group = ReadKeys(object, GroupKeys());
  object.RefuseUnknown();
  if (group.names.empty() && !group.max_dims) {
    object.Fail("", "matches every parameter; it needs names or max_dims");
  }
  if (!group.lr && !group.weight_decay) {
    object.Fail("", "changes nothing; it needs lr or weight_decay");
  }
  return group;
}

}  // namespace

OptimizerConfig ParseOptimizer(JsonObject object) {
  OptimizerConfig optimizer;
  optimizer.type = ParseType(object, optimizer.name);
  ReadParams(object.ObjectOrEmpty("params", "Settings of the optimizer."), optimizer);
  const std::vector<JsonObject> groups = object.Objects("param_groups");
  ExplainLastKey(
      "Groups of parameters with their own settings. A parameter belongs to the first group that "
      "matches it; on a frozen one no group has an effect. Not a key of DeepSpeed.");
  for (const JsonObject& group : groups) optimizer.groups.push_back(ParseGroup(group));
  object.RefuseUnlessOff({"legacy_fusion"},
                         "is an option of Apex, which dslaunch does not use; leave it out");
  object.RefuseUnknown();
  return optimizer;
}

nlohmann::ordered_json ShowOptimizer(const OptimizerConfig& optimizer) {
  using Json = nlohmann::ordered_json;
  Json params = ShowKeys(SharedKeys(), optimizer);
  params.update(ShowKeys(KeysOfType(optimizer.type), optimizer));
  if (optimizer.IsAdam()) {
    for (const bool torch_adam : {false, true}) {
      params.update(ShowKeys(AdamKeys(torch_adam), optimizer));
    }
  }
  Json groups = Json::array();
  for (const ParameterGroupConfig& group : optimizer.groups) {
    groups.push_back(ShowKeys(GroupKeys(), group));
  }
  return {{"type", optimizer.name}, {"params", params}, {"param_groups", groups}};
}

}  // namespace dslaunch
