#include "trainer/config/engine_config.h"

#include <algorithm>

#include "trainer/base/train_error.h"
#include "trainer/config/auto_values.h"
#include "trainer/config/json_object.h"
#include "trainer/config/unsupported_keys.h"

namespace dslaunch {
namespace {

constexpr int64_t kForwardSamples = 8;  // of one pass where nothing is trained
constexpr int64_t kMaxBatch = int64_t{1} << 31;

CommunicationConfig ParseCommunication(JsonObject& object) {
  CommunicationConfig communication;
  if (const auto dtype =
          object.WordInAnyCase("communication_data_type", {"bf16", "fp16", "fp32"})) {
    communication.dtype = *dtype == "fp32"   ? Dtype::kFloat32
                          : *dtype == "fp16" ? Dtype::kFloat16
                                             : Dtype::kBFloat16;
  }
  communication.prescale = object.Bool("prescale_gradients").value_or(false);
  communication.predivide_factor = object.Number("gradient_predivide_factor", 0).value_or(1);
  communication.sum =
      object.WordInAnyCase("gradient_allreduce_op", {"mean", "sum"}).value_or("mean") == "sum";
  const bool predivides = communication.predivide_factor != 1;
  if (communication.predivide_factor == 0) {
    object.Fail("gradient_predivide_factor", "is 0; it must be above 0");
  }
  if (communication.sum && (communication.prescale || predivides)) {
    object.Fail("gradient_allreduce_op",
                std::string("is sum, which does not divide; remove ") +
                    (predivides ? "gradient_predivide_factor" : "prescale_gradients"));
  }
  if (communication.prescale && predivides) {
    object.Fail("gradient_predivide_factor",
                "has no effect with prescale_gradients; remove one of them");
  }
  return communication;
}

constexpr const char* kLogLevels[] = {"debug", "info", "warning", "error", "critical"};

constexpr const char* kTagValidations[] = {"ignore", "warn", "fail"};

TagValidation ParseCheckpoint(JsonObject object) {
  const std::string why = "dslaunch configures checkpoints by --checkpoint_dir; leave it out";
  for (const auto& [key, standard] :
       {std::pair("checkpoint_serialization", nlohmann::json(true)),
        std::pair("load_universal", nlohmann::json(false)),
        std::pair("use_node_local_storage", nlohmann::json(false)),
        std::pair("parallel_write", nlohmann::json{{"pipeline_stage", false}}),
        std::pair("writer", nlohmann::json())}) {
    object.RefuseUnlessStandard(key, standard, why);
  }
  const std::optional<std::string> word = object.WordInAnyCase(
      "tag_validation", {std::begin(kTagValidations), std::end(kTagValidations)});
  object.RefuseUnknown();
  return static_cast<TagValidation>(
      std::find(std::begin(kTagValidations), std::end(kTagValidations), word.value_or("warn")) -
      std::begin(kTagValidations));
}

// 0: none. DeepSpeed's configurations also have false for it.
int64_t ParseNumberCheckpoints(JsonObject& object) {
  const char* const key = "number_checkpoints";
  if (object.IsBool(key) && !object.Bool(key).value_or(true)) return 0;
  return object.Int(key, 0).value_or(0);
}

// `pipeline` is the section of that name.
int64_t ParseActivationCheckpointing(JsonObject object, const PipelineConfig& pipeline) {
  const int64_t parts = ParseNumberCheckpoints(object);
  const std::string instead =
      "choose number_checkpoints, or in a pipeline pipeline.activation_checkpoint_interval, which "
      "compute activations again instead of keeping them";
  object.RefuseUnlessStandard(
      "cpu_checkpointing", false,
      "activations are not moved to the host; leave it out, and " + instead);
  object.RefuseUnlessStandard("profile", false,
                              "recomputation is not timed apart; use --profile, and leave it out");
  // Where activations lie and when the device is waited for. They are partitioned over the ranks
  // of tensor parallelism, which is one.
  for (const char* key : {"partition_activations", "contiguous_memory_optimization",
                          "synchronize_checkpoint_boundary"}) {
    (void)object.Bool(key);
  }
  object.RefuseUnknown();
  if (parts > 0 && pipeline.wanted()) {
    object.Fail("number_checkpoints",
                "is " + std::to_string(parts) +
                    ", but a pipeline computes activations again by "
                    "pipeline.activation_checkpoint_interval; leave it out and set that");
  }
  return parts;
}

// DeepSpeed's first form of the section was true for stage 1, with allgather_size beside it.
ZeroConfig ParseZeroSection(JsonObject& object) {
  if (!object.IsBool("zero_optimization")) {
    return ParseZero(object.ObjectOrEmpty("zero_optimization"));
  }
  ZeroConfig zero;
  if (object.Bool("zero_optimization").value_or(false)) zero.stage = 1;
  zero.allgather_bucket_size = object.Int("allgather_size", 0).value_or(zero.allgather_bucket_size);
  return zero;
}

EngineLogLevel ParseLogLevel(JsonObject& object) {
  const auto word =
      object.WordInAnyCase("log_level", {std::begin(kLogLevels), std::end(kLogLevels)});
  return static_cast<EngineLogLevel>(
      std::find(std::begin(kLogLevels), std::end(kLogLevels), word.value_or("info")) -
      std::begin(kLogLevels));
}

// How DeepSpeed reads and writes with device nvme. Here the kernel does.
void AcceptAio(JsonObject aio) {
  for (const char* key : {"block_size", "queue_depth", "intra_op_parallelism", "thread_count"}) {
    aio.Int(key, 0);
  }
  for (const char* key : {"single_submit", "overlap_events"}) aio.Bool(key);
  aio.RefuseUnlessOff({"use_gds"}, "is NVIDIA's GPUDirect Storage, which is not supported");
  aio.RefuseUnknown();
}

// What asks for something of all ranks in a step, of which each makes its own.
void CheckStaleness(const JsonObject& object, const EngineConfig& engine) {
  const auto refuse = [&](const std::string& other) {
    object.Fail("parallel.staleness", "cannot be combined with " + other);
  };
  if (engine.precision.loss_scaler) {
    refuse("fp16, whose loss scale all ranks decide on together; use bf16");
  }
  if (engine.communication.sum) {
    refuse("gradient_allreduce_op sum, because nothing is added up over the ranks; remove it");
  }
  if (engine.optimizer && engine.optimizer->type == OptimizerConfig::Type::kLamb) {
    refuse("the optimizer " + engine.optimizer->name +
           ", which needs norms of whole parameters at each update; use AdamW");
  }
}

// Where ways to exchange gradients exclude others. 1-bit optimizers exchange on their own, as in
// DeepSpeed, which has them at stage 0 only.
void CheckExchanges(const JsonObject& object, const EngineConfig& engine) {
  using Mode = ParallelConfig::Mode;
  const bool has_mode = engine.parallel.mode != Mode::kAllReduce;
  const bool one_bit = engine.optimizer && engine.optimizer->CompressesExchanges();
  if (!has_mode && !one_bit) return;
  const std::string mode = ParallelModeName(engine.parallel.mode);
  const std::string key = one_bit ? "optimizer.type" : "parallel.mode";
  const std::string what = "is " + (one_bit ? engine.optimizer->name : mode);
  const auto refuse = [&](const std::string& other) {
    object.Fail(key, what + ", which cannot be combined with " + other);
  };
  const std::string leave = "; leave one of them out";
  if (one_bit && has_mode) refuse("parallel.mode " + mode + leave);
  if (engine.zero.stage > 0) {
    refuse("zero_optimization.stage " + std::to_string(engine.zero.stage) +
           (one_bit ? ": as in DeepSpeed, each rank keeps the whole momentum and its error; set "
                      "stage 0, or use " +
                          std::string(engine.optimizer->type == OptimizerConfig::Type::kOneBitLamb
                                          ? "Lamb"
                                          : "Adam")
                    : leave));
  }
  if (engine.pipeline.wanted()) refuse("a pipeline" + leave);
  if (engine.parallel.staleness) CheckStaleness(object, engine);
  if (!one_bit && engine.parallel.mode == Mode::kParameterServer) return;
  if (engine.communication.sum) {
    refuse("gradient_allreduce_op sum, because ranks exchange means; remove it");
  }
  if (engine.TrainsApart() && engine.precision.loss_scaler) {
    refuse("fp16, because a rank that skips a step would leave the others behind; use bf16");
  }
}

// What keeps a step from being recorded; empty: nothing in the configuration does.
std::string CudaGraphProblem(const EngineConfig& engine) {
  using Type = OptimizerConfig::Type;
  if (engine.pipeline.wanted()) return "a pipeline, whose stages wait for each other";
  if (engine.parallel.mode != ParallelConfig::Mode::kAllReduce) {
    return std::string("parallel.mode ") + ParallelModeName(engine.parallel.mode) +
           ", whose messages are not recorded";
  }
  if (engine.number_checkpoints > 0) {
    return "activation_checkpointing.number_checkpoints, which sets generators in each step";
  }
  if (engine.zero.stage == 3)
    return "zero_optimization.stage 3, which decides at run time what to gather";
  if (engine.zero.offload_optimizer.device != OffloadDevice::kNone) {
    return "zero_optimization.offload_optimizer, which computes on the CPU";
  }
  if (engine.precision.loss_scaler) return "a loss scale, which is checked in each step; use bf16";
  if (engine.optimizer && engine.optimizer->type != Type::kAdam &&
      engine.optimizer->type != Type::kAdamW) {
    return "the optimizer " + engine.optimizer->name + "; use Adam or AdamW";
  }
  if (ScheduledMomentum(engine.scheduler.schedule, 0)) {
    return "the scheduler " + engine.scheduler.name + ", which changes betas";
  }
  return "";
}

bool ParseCudaGraph(JsonObject& object, const EngineConfig& engine) {
  if (!object.Bool("cuda_graph").value_or(false)) return false;
  const std::string problem = CudaGraphProblem(engine);
  if (!problem.empty()) object.Fail("cuda_graph", "cannot be combined with " + problem);
  const std::optional<FlopsProfilerConfig>& flops = engine.monitors.flops_profiler;
  if (flops && flops->profile_step > kGraphWarmUpSteps) {
    object.Fail("cuda_graph", "replays the step " + std::to_string(flops->profile_step) +
                                  " that flops_profiler.profile_step selects, and a replay runs "
                                  "no operators to count; profile one of the first " +
                                  std::to_string(kGraphWarmUpSteps));
  }
  return true;
}

[[noreturn]] void FailMissingValues(const JsonObject& object,
                                    const std::vector<std::string>& keys) {
  std::string list;
  for (const std::string& key : keys) list += (list.empty() ? "" : ", ") + key;
  object.FailWhole(
      "\"auto\" stands for an argument of Hugging Face's Trainer, which is not there; "
      "write a value, or leave the key out: " +
      list);
}

}  // namespace

const char* TagValidationName(TagValidation validation) {
  return kTagValidations[static_cast<size_t>(validation)];
}

const char* EngineLogLevelName(EngineLogLevel level) {
  return kLogLevels[static_cast<size_t>(level)];
}

Dtype TravelDtype(const EngineConfig& config) {
  return config.communication.dtype.value_or(config.batch.accumulation_steps == 1
                                                 ? config.precision.model
                                                 : config.precision.grad_accumulation);
}

BatchConfig ResolveBatch(std::optional<int64_t> train_batch_size,
                         std::optional<int64_t> micro_batch_size,
                         std::optional<int64_t> accumulation_steps, int64_t ranks,
                         const JsonObject& object) {
  const auto text = [](std::optional<int64_t> n) {
    return n ? std::to_string(*n) : std::string("?");
  };
  if (!train_batch_size && !micro_batch_size) {
    object.FailWhole(
        "train_batch_size or train_micro_batch_size_per_gpu is missing; give one of them");
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
    object.FailWhole("the batch is too large: " + sum);
  }
  batch.train_batch_size = train_batch_size.value_or(product);
  if (product != batch.train_batch_size || product == 0) {
    object.FailWhole("the batch sizes do not fit: " + sum +
                     (train_batch_size && micro_batch_size && accumulation_steps
                          ? " (= " + std::to_string(product) + ")"
                          : " has no whole solution") +
                     "; change one of them, or the number of ranks");
  }
  return batch;
}

Mesh EngineConfig::MeshOf(int ranks) const {
  const std::optional<Mesh> mesh =
      MakeMesh(ranks, static_cast<int>(pipeline.stages), /*tensor=*/1, pipeline.rank_order);
  if (!mesh) RefuseInput("pipeline.stages " + StagesMisfit(pipeline.stages, ranks));
  return *mesh;
}

EngineConfig ParseEngineConfig(const JsonObject& given, int64_t ranks,
                               const std::optional<OptimizerConfig>& program_optimizer,
                               int64_t program_stages) {
  const ResolvedAuto resolved = ResolveAuto(given.value());
  if (!resolved.missing.empty()) FailMissingValues(given, resolved.missing);
  JsonObject object = given.Over(resolved.engine);
  EngineConfig engine;
  engine.auto_notice = AutoNotice(resolved.chosen, kTrainerDefaults);
  const auto train = object.Int("train_batch_size", 1, kMaxBatch);
  const auto micro = object.Int("train_micro_batch_size_per_gpu", 1, kMaxBatch);
  const auto accumulation = object.Int("gradient_accumulation_steps", 1, kMaxBatch);
  engine.optimizer = program_optimizer;
  if (auto optimizer = object.Object("optimizer")) engine.optimizer = ParseOptimizer(*optimizer);
  if (auto scheduler = object.Object("scheduler")) {
    engine.scheduler = ParseScheduler(*scheduler, engine.optimizer.value_or(OptimizerConfig()));
  }
  engine.precision = ParsePrecision(object);
  engine.communication = ParseCommunication(object);
  engine.zero = ParseZeroSection(object);
  engine.pipeline = ParsePipeline(object.ObjectOrEmpty("pipeline"), ranks, program_stages);
  engine.parallel = ParseParallel(object.ObjectOrEmpty("parallel"), ranks);
  engine.number_checkpoints = ParseActivationCheckpointing(
      object.ObjectOrEmpty("activation_checkpointing"), engine.pipeline);
  engine.monitors = ParseMonitors(object);
  engine.communication.overlap = engine.zero.overlap_comm.value_or(true);
  engine.tag_validation = ParseCheckpoint(object.ObjectOrEmpty("checkpoint"));
  engine.gradient_clipping =
      object.Number("gradient_clipping", 0).value_or(engine.gradient_clipping);
  engine.steps_per_print = object.Int("steps_per_print", 1).value_or(0);
  engine.dataloader_drop_last = object.Bool("dataloader_drop_last").value_or(false);
  engine.broadcast_buffers = object.Bool("broadcast_buffers").value_or(true);
  engine.dump_state = object.Bool("dump_state").value_or(false);
  engine.memory_breakdown = object.Bool("memory_breakdown").value_or(false);
  engine.log_level = ParseLogLevel(object);
  engine.cuda_graph = ParseCudaGraph(object, engine);
  engine.allow_untested_optimizer = object.Bool("zero_allow_untested_optimizer").value_or(false);
  AcceptAio(object.ObjectOrEmpty("aio"));
  RefuseUnsupportedKeys(object);
  object.RefuseUnknown();
  CheckExchanges(object, engine);
  if (engine.optimizer && engine.optimizer->IsLamb() && engine.precision.loss_scaler &&
      !engine.precision.loss_scaler->dynamic) {
    object.Fail("optimizer", "is " + engine.optimizer->name +
                                 ", which needs a dynamic loss scale, as in DeepSpeed");
  }
  engine.batch = ranks > 0 ? ResolveBatch(train, micro, accumulation,
                                          engine.MeshOf(static_cast<int>(ranks)).data, object)
                           : BatchConfig{0, micro.value_or(kForwardSamples), 1};
  return engine;
}

EngineConfig ParseEngineConfig(const std::string& json_text, const std::string& source,
                               int64_t ranks, const std::string& optimizer_json,
                               int64_t program_stages) {
  std::optional<OptimizerConfig> optimizer;
  if (!optimizer_json.empty()) {
    const std::string optimizer_source = "the program's optimizer";
    const nlohmann::json json = ParseJson(optimizer_json, optimizer_source);
    optimizer = ParseOptimizer(JsonObject(json, optimizer_source, ""));
  }
  const nlohmann::json json = ParseJson(json_text, source);
  return ParseEngineConfig(JsonObject(json, source, ""), ranks, optimizer, program_stages);
}

}  // namespace dslaunch
