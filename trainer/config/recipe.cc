#include "trainer/config/recipe.h"

#include "trainer/config/json_object.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

constexpr char kDefaultDataPath[] = "/usr/share/datasets/fashion-mnist";
constexpr int64_t kMaxBatch = int64_t{1} << 31;
constexpr int64_t kMaxUnits = int64_t{1} << 20;

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

ModelConfig ParseModel(JsonObject object) {
  ModelConfig model;
  const std::optional<std::string> type = object.Word("type", {"mlp", "cnn"});
  if (!type) object.Fail("type", "is missing; it is mlp or cnn");
  model.type = *type == "mlp" ? ModelConfig::Type::kMlp : ModelConfig::Type::kCnn;
  model.hidden_size = object.Int("hidden_size", 1, kMaxUnits).value_or(model.hidden_size);
  model.num_classes = object.Int("num_classes", 2, 256).value_or(model.num_classes);
  object.RefuseUnknown();
  return model;
}

DataConfig ParseData(JsonObject object) {
  DataConfig data;
  if (!object.Word("type", {"idx"})) object.Fail("type", "is missing; it is idx");
  data.path = object.String("path").value_or(kDefaultDataPath);
  data.shuffle = object.Bool("shuffle").value_or(data.shuffle);
  data.drop_last = object.Bool("drop_last").value_or(data.drop_last);
  object.RefuseUnknown();
  return data;
}

RunConfig ParseRun(JsonObject object) {
  RunConfig run;
  run.epochs = object.Int("epochs", 1, 1'000'000);
  run.steps = object.Int("steps", 1);
  run.seed = static_cast<uint64_t>(object.Int("seed", 0).value_or(0));
  run.eval_every = object.Int("eval_every", 1);
  run.metrics_jsonl = object.String("metrics_jsonl").value_or("");
  run.checkpoint_dir = object.String("checkpoint_dir").value_or("");
  run.save_every = object.Int("save_every", 1);
  const std::optional<std::string> resume = object.String("resume");
  const std::optional<int64_t> keep = object.Int("keep_checkpoints", 1);
  object.RefuseUnknown();
  for (const auto& [key, given] :
       {std::pair("save_every", run.save_every.has_value()),
        std::pair("resume", resume.has_value()), std::pair("keep_checkpoints", keep.has_value())}) {
    if (given && run.checkpoint_dir.empty()) {
      object.Fail(key, "needs run.checkpoint_dir (--checkpoint_dir)");
    }
  }
  run.resume = resume.value_or(run.resume);
  if (run.resume.empty() || run.resume.front() == '.' ||
      run.resume.find('/') != std::string::npos) {
    object.Fail("resume", "is \"" + run.resume +
                              "\"; it is auto, none or the name of a checkpoint (step_000120)");
  }
  run.keep_checkpoints = keep.value_or(run.keep_checkpoints);
  if (run.epochs.has_value() == run.steps.has_value()) {
    object.Fail("", "needs one of epochs and steps; it has " +
                        std::string(run.epochs ? "both" : "neither"));
  }
  return run;
}

EngineConfig ParseEngine(JsonObject object, int64_t ranks, const std::string& source) {
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
    engine.scheduler = ParseScheduler(*scheduler, engine.optimizer);
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

Recipe ParseRecipe(const std::string& json_text, const std::string& source, int64_t ranks) {
  const nlohmann::json json = ParseJson(json_text, source);
  JsonObject object(json, source, "");
  const auto section = [&](const char* name) {
    std::optional<JsonObject> found = object.Object(name);
    if (!found) object.Fail(name, "is missing; a recipe has model, data, run and engine");
    return *found;
  };
  Recipe recipe;
  recipe.model = ParseModel(section("model"));
  recipe.data = ParseData(section("data"));
  recipe.run = ParseRun(section("run"));
  recipe.engine = ParseEngine(section("engine"), ranks, source);
  object.RefuseUnknown();
  return recipe;
}

}  // namespace dslaunch
