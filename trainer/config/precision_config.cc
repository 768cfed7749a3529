#include "trainer/config/precision_config.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "trainer/config/json/key_table.h"

namespace dslaunch {
namespace {

constexpr int64_t kAnyMin = std::numeric_limits<int64_t>::min();

// Reads a dtype by one of DeepSpeed's names.
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

bool IsEnabled(JsonObject& section) {
  const bool on = section.Bool("enabled").value_or(false);
  ExplainLastKey("turns the section on; default false");
  return on;
}

// Returns the defaults of torch.amp.GradScaler and Apex, which halve the scale at every overflow.
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

KeyTable<LossScalerConfig> DynamicScaleKeys(int64_t least) {
  using S = LossScalerConfig;
  constexpr int64_t kMaxScalePower = 126;  // log2 of the largest scale, limited by fp32
  return {IntKey("initial_scale_power", &S::initial_scale_power,
                 {least == 1 ? 0 : kAnyMin, kMaxScalePower},
                 "the initial dynamic scale is 2 to this power"),
          IntKey("loss_scale_window", &S::loss_scale_window, {least},
                 "updates without overflow after which the scale doubles"),
          IntKey("hysteresis", &S::hysteresis, {least},
                 "number of overflows after which the scale is halved"),
          BoolKey("consecutive_hysteresis", &S::consecutive_hysteresis,
                  "every update without overflow resets the hysteresis, not only growth of the "
                  "scale"),
          IntKey("min_loss_scale", &S::min_loss_scale, {least}, "")};
}

// Reads the settings of the loss scaler. As in DeepSpeed, values are checked only where they have
// an effect: disabled sections, and dynamic settings with a static scale, may have any value of the
// right type.
LossScalerConfig ParseLossScaler(JsonObject& fp16, bool enabled) {
  LossScalerConfig scaler;
  scaler.static_scale = fp16.Number("loss_scale", 0).value_or(0);
  ExplainLastKey("0: dynamic; default 0");
  scaler.dynamic = scaler.static_scale == 0;
  const int64_t least = enabled && scaler.dynamic ? 1 : kAnyMin;
  ReadKeys(fp16, DynamicScaleKeys(least), scaler);
  if (least == 1 && scaler.min_loss_scale > std::ldexp(1.0, scaler.initial_scale_power)) {
    fp16.Fail("min_loss_scale", "is above the first scale, 2^initial_scale_power");
  }
  return scaler;
}

void ParseFp16(JsonObject fp16, PrecisionConfig& precision, std::vector<std::string>& enabled) {
  const bool on = IsEnabled(fp16);
  const LossScalerConfig scaler = ParseLossScaler(fp16, on);
  (void)fp16.Bool("auto_cast");
  ExplainLastKey("accepted, no effect: models cast their inputs themselves");
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
  const bool on = IsEnabled(bf16);
  const bool check = bf16.Bool("check_grad_overflow").value_or(true);
  ExplainLastKey("skip a step whose gradients are not finite; default true");
  // In DeepSpeed this key selects when gradients are added to their fp32 sums. Here they are always
  // added at once, with the same result.
  bf16.Bool("immediate_grad_update");
  ExplainLastKey(kNoEffect);
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
  const bool on = IsEnabled(autocast);
  const std::optional<Dtype> dtype = ParseDtype(autocast, "dtype");
  ExplainLastKey("bfloat16 or float16; required if `enabled`");
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

// Reads amp.loss_scale: a number above 0, or "dynamic".
std::optional<LossScalerConfig> ParseAmpLossScale(JsonObject& amp) {
  if (amp.TypeOf("loss_scale") == JsonType::string) {
    amp.Word("loss_scale", {"dynamic"});
    return AutocastLossScaler();
  }
  const std::optional<double> scale = amp.Number("loss_scale", 0);
  ExplainLastKey("above 0; default dynamic for O1 and O2, 1 for O0 and O3");
  if (!scale) return std::nullopt;
  if (*scale == 0) amp.Fail("loss_scale", "is 0; it must be above 0, or \"dynamic\"");
  return StaticLossScaler(*scale);
}

void ParseAmp(JsonObject amp, PrecisionConfig& precision, std::vector<std::string>& enabled) {
  const bool on = IsEnabled(amp);
  const std::string level = amp.Word("opt_level", {"O0", "O1", "O2", "O3"}).value_or("O1");
  ExplainLastKey(
      "`O0`: fp32; `O1`: autocast in fp16; `O2`: fp16 with fp32 masters and batch norms; `O3`: "
      "fp16 throughout; default O1");
  const std::optional<LossScalerConfig> scaler = ParseAmpLossScale(amp);
  const std::optional<bool> batch_norm_float32 = amp.Bool("keep_batchnorm_fp32");
  ExplainLastKey("O2 and O3; default true for O2");
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
  ExplainLastKey("fp32, or the model's type; default fp32");
  const std::string model = DtypeName(precision.model);
  for (const char* key : {"param_dtype", "buffer_dtype"}) {
    const std::optional<Dtype> dtype = ParseDtype(types, key);
    ExplainLastKey("accepted only if it agrees with fp16, bf16 and amp");
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
  ParseFp16(engine.ObjectOrEmpty("fp16", "Training in fp16, with a loss scale."), precision,
            enabled);
  const char* const bf16 = engine.Object("bf16", "Training in bf16.") ? "bf16" : "bfloat16";
  if (engine.Object("bf16") && engine.Object("bfloat16", "The older name of bf16.")) {
    engine.Fail("bfloat16", "is the older name of bf16, which is also set; keep one");
  }
  ParseBf16(engine.ObjectOrEmpty(bf16), precision, enabled);
  ParseAutocast(
      engine.ObjectOrEmpty("torch_autocast",
                           "Operators choose their own precision, as torch.autocast does."),
      precision, enabled);
  ParseAmp(engine.ObjectOrEmpty("amp", "Apex's presets; Apex is not needed."), precision, enabled);
  if (enabled.size() > 1) {
    engine.Fail(enabled[1], "is enabled, and " + enabled[0] + " too; enable one of them");
  }
  ParseDataTypes(engine.ObjectOrEmpty("data_types", "Data type of gradient accumulation."),
                 precision);
  return precision;
}

nlohmann::ordered_json ShowPrecision(const PrecisionConfig& precision) {
  using Json = nlohmann::ordered_json;
  Json scaler;
  if (precision.loss_scaler && precision.loss_scaler->dynamic) {
    scaler = {{"loss_scale", "dynamic"}};
    scaler.update(ShowKeys(DynamicScaleKeys(1), *precision.loss_scaler));
  } else if (precision.loss_scaler) {
    scaler = {{"loss_scale", precision.loss_scaler->static_scale}};
  }
  return {{"model", DtypeName(precision.model)},
          {"batch_norm_fp32", precision.batch_norm_float32},
          {"master_weights", precision.master_weights ? Json("fp32") : Json()},
          {"grad_accum_dtype", DtypeName(precision.grad_accumulation)},
          {"autocast", precision.autocast ? Json(DtypeName(*precision.autocast)) : Json()},
          {"loss_scaler", scaler},
          {"skip_overflow", precision.skip_overflow}};
}

}  // namespace dslaunch
