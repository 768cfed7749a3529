#include "trainer/config/precision_config.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

constexpr int64_t kAnyMin = std::numeric_limits<int64_t>::min();

// DeepSpeed's names of number formats.
std::optional<Dtype> ParseDtype(JsonObject& object, const char* key) {
  static const std::map<std::string, Dtype> kDtypes = {
      {"fp32", Dtype::kFloat32},           {"float32", Dtype::kFloat32},
      {"float", Dtype::kFloat32},          {"torch.float32", Dtype::kFloat32},
      {"fp16", Dtype::kFloat16},           {"float16", Dtype::kFloat16},
      {"half", Dtype::kFloat16},           {"torch.float16", Dtype::kFloat16},
      {"bf16", Dtype::kBFloat16},          {"bfloat16", Dtype::kBFloat16},
      {"torch.bfloat16", Dtype::kBFloat16}};
  std::set<std::string> words;
  for (const auto& [word, dtype] : kDtypes) words.insert(word);
  const std::optional<std::string> word = object.Word(key, words);
  if (!word) return std::nullopt;
  return kDtypes.at(*word);
}

// What torch.amp.GradScaler and Apex start with. Both halve the scale at every overflow.
LossScalerConfig AutocastLossScaler() {
  LossScalerConfig scaler;
  scaler.loss_scale_window = 2000;
  scaler.hysteresis = 1;
  return scaler;
}

LossScalerConfig StaticLossScaler(double scale) {
  LossScalerConfig scaler;
  scaler.dynamic = false;
  scaler.static_scale = scale;
  return scaler;
}

// The values are checked where they have a meaning, as in DeepSpeed: disabled sections, and dynamic
// settings beside a static scale, may hold anything of the right type.
LossScalerConfig ParseLossScaler(JsonObject& fp16, bool enabled) {
  constexpr int64_t kMaxScalePower = 126;  // fp32 holds no more
  LossScalerConfig scaler;
  scaler.static_scale = fp16.Number("loss_scale", 0).value_or(0);
  scaler.dynamic = scaler.static_scale == 0;
  const int64_t least = enabled && scaler.dynamic ? 1 : kAnyMin;
  scaler.initial_scale_power =
      fp16.Int("initial_scale_power", least == 1 ? 0 : kAnyMin, kMaxScalePower)
          .value_or(scaler.initial_scale_power);
  scaler.loss_scale_window =
      fp16.Int("loss_scale_window", least).value_or(scaler.loss_scale_window);
  scaler.hysteresis = fp16.Int("hysteresis", least).value_or(scaler.hysteresis);
  scaler.consecutive_hysteresis = fp16.Bool("consecutive_hysteresis").value_or(false);
  scaler.min_loss_scale = static_cast<double>(fp16.Int("min_loss_scale", least).value_or(1));
  if (least == 1 && scaler.min_loss_scale > std::ldexp(1.0, scaler.initial_scale_power)) {
    fp16.Fail("min_loss_scale", "is above the first scale, 2^initial_scale_power");
  }
  return scaler;
}

void ParseFp16(JsonObject fp16, PrecisionConfig& precision, std::vector<std::string>& enabled) {
  const bool on = fp16.Bool("enabled").value_or(false);
  const LossScalerConfig scaler = ParseLossScaler(fp16, on);
  (void)fp16.Bool("auto_cast");  // models cast their own inputs
  fp16.RefuseUnlessOff({"fp16_master_weights_and_grads"},
                       "would keep the master weights in fp16, where small updates are lost; leave "
                       "it out, or use amp with opt_level O3, which has no master weights");
  fp16.RefuseUnknown();
  if (!on) return;
  enabled.push_back("fp16");
  precision.model = Dtype::kFloat16;
  precision.master_weights = true;
  precision.loss_scaler = scaler;
  precision.skip_overflow = true;
}

void ParseBf16(JsonObject bf16, PrecisionConfig& precision, std::vector<std::string>& enabled) {
  const bool on = bf16.Bool("enabled").value_or(false);
  const bool check = bf16.Bool("check_grad_overflow").value_or(true);
  // When gradients are added to their fp32 sums; always at once here, with the same result.
  bf16.Bool("immediate_grad_update");
  bf16.RefuseUnlessOff({"bf16_master_weights_and_grads", "bf16_optimizer_states"},
                       "would accumulate in bf16 over many steps, where small updates "
                       "are lost; leave it out");
  bf16.RefuseUnknown();
  if (!on) return;
  enabled.push_back("bf16");
  precision.model = Dtype::kBFloat16;
  precision.master_weights = true;
  precision.skip_overflow = check;
}

void ParseAutocast(JsonObject autocast, PrecisionConfig& precision,
                   std::vector<std::string>& enabled) {
  const bool on = autocast.Bool("enabled").value_or(false);
  const std::optional<Dtype> dtype = ParseDtype(autocast, "dtype");
  autocast.RefuseUnlessOff(
      {"lower_precision_safe_modules"},
      "names Python classes, which dslaunch does not have; leave it out to use PyTorch's "
      "own list of operators");
  autocast.RefuseUnknown();
  if (!on) return;
  if (!dtype || *dtype == Dtype::kFloat32) {
    autocast.Fail("dtype", std::string(dtype ? "is fp32" : "is missing") +
                               "; torch_autocast needs bfloat16 or float16");
  }
  enabled.push_back("torch_autocast");
  precision.autocast = dtype;
  if (*dtype == Dtype::kFloat16) precision.loss_scaler = AutocastLossScaler();
  precision.skip_overflow = *dtype == Dtype::kFloat16;
}

// A number above 0, or "dynamic".
std::optional<LossScalerConfig> ParseAmpLossScale(JsonObject& amp) {
  if (amp.HasString("loss_scale")) {
    amp.Word("loss_scale", {"dynamic"});
    return AutocastLossScaler();
  }
  const std::optional<double> scale = amp.Number("loss_scale", 0);
  if (!scale) return std::nullopt;
  if (*scale == 0) amp.Fail("loss_scale", "is 0; it must be above 0, or \"dynamic\"");
  return StaticLossScaler(*scale);
}

void ParseAmp(JsonObject amp, PrecisionConfig& precision, std::vector<std::string>& enabled) {
  const bool on = amp.Bool("enabled").value_or(false);
  const std::string level = amp.Word("opt_level", {"O0", "O1", "O2", "O3"}).value_or("O1");
  const std::optional<LossScalerConfig> scaler = ParseAmpLossScale(amp);
  const std::optional<bool> batch_norm_float32 = amp.Bool("keep_batchnorm_fp32");
  amp.RefuseUnknown();
  if (!on) return;
  enabled.push_back("amp");
  const bool casts_model = level == "O2" || level == "O3";
  if (batch_norm_float32 && !casts_model) {
    amp.Fail("keep_batchnorm_fp32", "has no meaning with opt_level " + level +
                                        ", whose batch norms are fp32 anyway; leave it out");
  }
  if (casts_model) {
    precision.model = Dtype::kFloat16;
    precision.master_weights = level == "O2";
    precision.batch_norm_float32 = batch_norm_float32.value_or(level == "O2");
  }
  if (level == "O1") precision.autocast = Dtype::kFloat16;
  if (level == "O1" || level == "O2") precision.loss_scaler = AutocastLossScaler();
  if (level == "O3") precision.loss_scaler = StaticLossScaler(1);
  if (scaler) precision.loss_scaler = scaler;
  precision.skip_overflow = precision.loss_scaler.has_value();
}

void ParseDataTypes(JsonObject types, PrecisionConfig& precision) {
  const std::optional<Dtype> accumulation = ParseDtype(types, "grad_accum_dtype");
  const std::string model = DtypeName(precision.model);
  for (const char* key : {"param_dtype", "buffer_dtype"}) {
    const std::optional<Dtype> dtype = ParseDtype(types, key);
    if (dtype && *dtype != precision.model) {
      types.Fail(key, std::string("is ") + DtypeName(*dtype) + ", but parameters and buffers are " +
                          model + ", according to the sections fp16, bf16 and amp; leave it out");
    }
  }
  types.RefuseUnlessOff({"keep_in_fp32_modules"},
                        "names Python modules, which dslaunch does not have; leave it out");
  types.RefuseUnknown();
  if (!precision.master_weights) precision.grad_accumulation = precision.model;
  if (!accumulation) return;
  if (*accumulation != precision.grad_accumulation && *accumulation != precision.model) {
    types.Fail("grad_accum_dtype", std::string("is ") + DtypeName(*accumulation) +
                                       ", but gradients of this " + model + " model add up in " +
                                       (precision.master_weights ? "fp32 or " : "") + model);
  }
  precision.grad_accumulation = *accumulation;
}

}  // namespace

PrecisionConfig ParsePrecision(JsonObject& engine) {
  PrecisionConfig precision;
  std::vector<std::string> enabled;
  ParseFp16(engine.ObjectOrEmpty("fp16"), precision, enabled);
  const char* const bf16 = engine.Object("bf16") ? "bf16" : "bfloat16";
  if (engine.Object("bf16") && engine.Object("bfloat16")) {
    engine.Fail("bfloat16", "is the older name of bf16, which is also set; keep one");
  }
  ParseBf16(engine.ObjectOrEmpty(bf16), precision, enabled);
  ParseAutocast(engine.ObjectOrEmpty("torch_autocast"), precision, enabled);
  ParseAmp(engine.ObjectOrEmpty("amp"), precision, enabled);
  if (enabled.size() > 1) {
    engine.Fail(enabled[1], "is enabled, and " + enabled[0] + " too; enable one of them");
  }
  ParseDataTypes(engine.ObjectOrEmpty("data_types"), precision);
  return precision;
}

}  // namespace dslaunch
