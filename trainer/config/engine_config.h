// The engine's configuration: DeepSpeed's JSON, with the names, defaults and meaning of DeepSpeed
// 0.19.6. What is not implemented is refused by name. Keys of our own: optimizer.param_groups
// (optimizer_config.h) and amp.opt_level, which stands for Apex's presets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/dtype.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/precision/loss_scaler.h"

namespace dslaunch {

// train_batch_size == micro_batch_size * accumulation_steps * ranks.
struct BatchConfig {
  int64_t train_batch_size = 0;    // samples of one optimizer step, over all ranks
  int64_t micro_batch_size = 0;    // samples of one forward pass on one rank
  int64_t accumulation_steps = 1;  // micro-batches of one optimizer step on one rank
};

// Of fp16, bf16, data_types, torch_autocast and amp together.
struct PrecisionConfig {
  Dtype model = Dtype::kFloat32;              // of parameters, buffers and the forward pass
  bool batch_norm_float32 = false;            // batch norms stay fp32 (opt_level O2)
  bool master_weights = false;                // fp32 copies, which are what the optimizer updates
  Dtype grad_accumulation = Dtype::kFloat32;  // over micro-batches; fp32 unless the user says other
  std::optional<Dtype> autocast;              // operators choose their own precision in the forward
  std::optional<LossScalerConfig> loss_scaler;  // fp16
  // A step whose gradients are not finite is skipped, as always with a loss scaler. Without, such
  // gradients are applied (bf16.check_grad_overflow: false) or, in fp32, end the run.
  bool skip_overflow = false;
};

// How gradients of the ranks become one.
struct CommunicationConfig {
  std::optional<Dtype> dtype;     // on the way; nullopt: the model's
  bool prescale = false;          // divide by the ranks before, not after, adding up
  double predivide_factor = 1.0;  // of the postscaled sum: divided by it before, by the rest after
  bool sum = false;               // add up only
  bool overlap = true;            // with the backward pass
};

struct EngineConfig {
  BatchConfig batch;
  std::optional<OptimizerConfig> optimizer;  // nullopt: the program gives one
  SchedulerConfig scheduler;
  PrecisionConfig precision;
  CommunicationConfig communication;
  double gradient_clipping = 1.0;  // largest L2 norm of the gradient; 0: no limit
  int64_t steps_per_print = 0;     // 0: no line per step
  bool dataloader_drop_last = false;
  bool dump_state = false;        // print the resolved configuration at the start
  bool memory_breakdown = false;  // print memory by category at the start and the end
};

// Any two of the three sizes give the third; a train or micro batch size alone means no
// accumulation. Throws kBadInput with the arithmetic where they contradict each other.
BatchConfig ResolveBatch(std::optional<int64_t> train_batch_size,
                         std::optional<int64_t> micro_batch_size,
                         std::optional<int64_t> accumulation_steps, int64_t ranks,
                         const std::string& source);

class JsonObject;

// Throws TrainError kBadInput, naming the key. `ranks` is the world size, `source` names the text.
// The first reads a section of a recipe, whose keys are named with the object's path; the second
// a file's text.
EngineConfig ParseEngineConfig(JsonObject object, int64_t ranks, const std::string& source);
EngineConfig ParseEngineConfig(const std::string& json_text, const std::string& source,
                               int64_t ranks);

}  // namespace dslaunch
