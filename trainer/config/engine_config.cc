#include "trainer/config/engine_config.h"

#include "trainer/config/json_object.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr int64_t kMaxBatch = int64_t{1} << 31;

// What DeepSpeed has and this program does not do.
const std::set<std::string> kUnsupportedEngineKeys = {"activation_checkpointing",
                                                      "aio",
                                                      "amp",
                                                      "autotuning",
                                                      "bf16",
                                                      "bfloat16",
                                                      "checkpoint",
                                                      "comet",
                                                      "comms_logger",
                                                      "communication_data_type",
                                                      "compile",
                                                      "compression_training",
                                                      "csv_monitor",
                                                      "curriculum_learning",
                                                      "data_efficiency",
                                                      "data_types",
                                                      "dump_state",
                                                      "eigenvalue",
                                                      "elasticity",
                                                      "expert_parallel",
                                                      "flops_profiler",
                                                      "fp16",
                                                      "gradient_allreduce_op",
                                                      "gradient_predivide_factor",
                                                      "hybrid_engine",
                                                      "log_level",
                                                      "memory_breakdown",
                                                      "nebula",
                                                      "pipeline",
                                                      "prescale_gradients",
                                                      "progressive_layer_drop",
                                                      "quantize_training",
                                                      "sparse_attention",
                                                      "sparse_gradients",
                                                      "tensor_parallel",
                                                      "tensorboard",
                                                      "timers",
                                                      "torch_autocast",
                                                      "wall_clock_breakdown",
                                                      "wandb",
                                                      "weight_quantization",
                                                      "zero_allow_untested_optimizer",
                                                      "zero_optimization"};

}  // namespace

BatchConfig ResolveBatch(std::optional<int64_t> train_batch_size,
                         std::optional<int64_t> micro_batch_size,
                         std::optional<int64_t> accumulation_steps, int64_t ranks,
                         const std::string& source) {
  const auto text = [](std::optional<int64_t> n) {
    return n ? std::to_string(*n) : std::string("?");
  };
  if (!train_batch_size && !micro_batch_size) {
    throw TrainError(ExitCode::kBadInput,
                     source + ": engine needs train_batch_size or train_micro_batch_size_per_gpu");
  }
  const std::string sum = "train_batch_size " + text(train_batch_size) +
                          " = train_micro_batch_size_per_gpu " + text(micro_batch_size) +
                          " x gradient_accumulation_steps " + text(accumulation_steps) + " x " +
                          std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  BatchConfig batch;
  batch.accumulation_steps = accumulation_steps.value_or(1);
  if (train_batch_size && micro_batch_size && !accumulation_steps) {
    batch.accumulation_steps = *train_batch_size / *micro_batch_size / ranks;
  }
  batch.micro_batch_size =
      micro_batch_size ? *micro_batch_size : *train_batch_size / batch.accumulation_steps / ranks;
  int64_t product = 0;
  if (__builtin_mul_overflow(batch.micro_batch_size, batch.accumulation_steps, &product) ||
      __builtin_mul_overflow(product, ranks, &product) || product > kMaxBatch) {
    throw TrainError(ExitCode::kBadInput, source + ": engine: the batch is too large: " + sum);
  }
  batch.train_batch_size = train_batch_size.value_or(product);
  if (product != batch.train_batch_size || product == 0) {
    throw TrainError(ExitCode::kBadInput,
                     source + ": engine: the batch sizes do not fit: " + sum +
                         (train_batch_size && micro_batch_size && accumulation_steps
                              ? " (= " + std::to_string(product) + ")"
                              : " has no whole solution") +
                         "; change one of them, or the number of ranks");
  }
  return batch;
}

EngineConfig ParseEngineConfig(JsonObject object, int64_t ranks, const std::string& source) {
  EngineConfig engine;
  const auto train = object.Int("train_batch_size", 1, kMaxBatch);
  const auto micro = object.Int("train_micro_batch_size_per_gpu", 1, kMaxBatch);
  const auto accumulation = object.Int("gradient_accumulation_steps", 1, kMaxBatch);
  if (auto optimizer = object.Object("optimizer")) {
    engine.optimizer = ParseOptimizer(*optimizer);
  } else {
    object.Fail("optimizer",
                "is missing; for example {\"type\": \"Adam\", \"params\": {\"lr\": 0.001}}");
  }
  if (auto scheduler = object.Object("scheduler")) {
    engine.scheduler = ParseScheduler(*scheduler, *engine.optimizer);
  }
  engine.gradient_clipping =
      object.Number("gradient_clipping", 0).value_or(engine.gradient_clipping);
  engine.steps_per_print = object.Int("steps_per_print", 1).value_or(0);
  engine.dataloader_drop_last = object.Bool("dataloader_drop_last").value_or(false);
  object.RefuseUnlessOff(kUnsupportedEngineKeys,
                         "is a DeepSpeed key that dslaunch does not support yet; take it out");
  object.RefuseUnknown();
  engine.batch = ResolveBatch(train, micro, accumulation, ranks, source);
  return engine;
}

EngineConfig ParseEngineConfig(const std::string& json_text, const std::string& source,
                               int64_t ranks) {
  const nlohmann::json json = ParseJson(json_text, source);
  return ParseEngineConfig(JsonObject(json, source, ""), ranks, source);
}

}  // namespace dslaunch
