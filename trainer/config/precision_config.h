// Defines the sections fp16, bf16 (or bfloat16), data_types, torch_autocast and amp of an engine
// configuration. At most one of fp16, bf16, torch_autocast and amp may be enabled.
//
//   "amp": {"enabled": true, "opt_level": "O1"}
//
// is an extension with the presets of NVIDIA's Apex, to which DeepSpeed passes the section:
//
//   opt_level  model                    forward pass   fp32 masters  loss scale
//   O0         fp32                     fp32           -             1
//   O1         fp32                     autocast fp16  -             dynamic
//   O2         fp16, batch norms fp32   fp16           yes           dynamic
//   O3         fp16                     fp16           no            1
//
// amp.loss_scale (a number or "dynamic") and amp.keep_batchnorm_fp32 (O2, O3) override the presets.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "trainer/base/dtype.h"

namespace dslaunch {

// Settings for scaling the loss in fp16 training (trainer/precision/loss_scaler.h).
struct LossScalerConfig {
  bool dynamic = true;
  double static_scale = 1;  // scale of the loss if `dynamic` is false
  // Log2 of the first dynamic scale; this and the following fields are for a dynamic scale.
  int64_t initial_scale_power = 16;
  // Number of updates without overflow after which the scale doubles.
  int64_t loss_scale_window = 1000;
  // Number of consecutive overflows, of which only the last halves the scale.
  int64_t hysteresis = 2;
  // True if any update without overflow resets the hysteresis.
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool raise_error_at_min_scale = true;
};

class JsonObject;

struct PrecisionConfig {
  Dtype model = Dtype::kFloat32;    // dtype of parameters, buffers and the forward pass
  bool batch_norm_float32 = false;  // true if batch norms keep fp32 (opt_level O2)
  bool master_weights = false;      // true if the optimizer updates fp32 copies of the weights
  Dtype grad_accumulation = Dtype::kFloat32;  // dtype of the sums of gradients over micro-batches
  // Dtype of autocast in the forward pass, in which operators choose their own precision; nullopt
  // if autocast is not used.
  std::optional<Dtype> autocast;
  std::optional<LossScalerConfig> loss_scaler;  // loss scaler, which only fp16 has
  // True if steps with gradients that are not finite are skipped, as always with a loss scaler. If
  // false, such gradients are applied (bf16.check_grad_overflow: false) or, in fp32, end the run.
  bool skip_overflow = false;
};

// Reads the precision sections of `engine`. Gradients accumulate in fp32, unless
// data_types.grad_accum_dtype selects another dtype or there are no master weights (opt_level O3:
// in fp16). Throws TrainError kBadInput, naming the key.
PrecisionConfig ParsePrecision(JsonObject& engine);
nlohmann::ordered_json ShowPrecision(const PrecisionConfig& precision);

}  // namespace dslaunch
