#include "trainer/config/engine_config.h"

#include <algorithm>

#include "trainer/base/train_error.h"
#include "trainer/config/auto_values.h"
#include "trainer/config/json/key_table.h"
#include "trainer/config/unsupported_keys.h"

namespace dslaunch {
namespace {

constexpr int64_t kForwardSamples = 8;  // number of samples of a forward pass without training
constexpr int64_t kMaxBatch = int64_t{1} << 31;

constexpr const char* kLogLevels[] = {"debug", "info", "warning", "error", "critical"};
constexpr const char* kTagValidations[] = {"ignore", "warn", "fail"};

// Batch sizes as given by the user; two of them determine the third (ResolveBatch).
struct GivenBatch {
  std::optional<int64_t> train, micro, accumulation;
};

KeyTable<GivenBatch> BatchKeys() {
  using B = GivenBatch;
  return {IntKey("train_batch_size", &B::train, {1, kMaxBatch},
                 "samples of one optimizer step over all ranks; any two of the three sizes give "
                 "the third"),
          IntKey("train_micro_batch_size_per_gpu", &B::micro, {1, kMaxBatch},
                 "samples of one forward pass on one rank"),
          IntKey("gradient_accumulation_steps", &B::accumulation, {1, kMaxBatch},
                 "micro-batches of one optimizer step on one rank; default 1")};
}

const KeyTable<CommunicationConfig>& CommunicationKeys() {
  using C = CommunicationConfig;
  static const KeyTable<C> kKeys = {
      {"communication_data_type",
       [](JsonObject& object, const char* key, C& communication) {
         const auto dtype = object.Word(key, {"bf16", "fp16", "fp32"}, WordCase::kAny);
         if (!dtype) return;
         communication.dtype = *dtype == "fp32"   ? Dtype::kFloat32
                               : *dtype == "fp16" ? Dtype::kFloat16
                                                  : Dtype::kBFloat16;
       },
       nullptr,
       "data type in which gradients are sent; default: the model's type with one micro-batch, "
       "else the type of gradient accumulation"},
      SameOnRanks(BoolKey("prescale_gradients", &C::prescale,
                          "divide gradients by the number of ranks before the sum, not after")),
      SameOnRanks(NumberKey("gradient_predivide_factor", &C::predivide_factor, {0},
                            "divide gradients by this before the sum, and by (number of ranks / "
                            "this) after it; above 0")),
      SameOnRanks(WordKey("gradient_allreduce_op", &C::sum, {"mean", "sum"}, "", WordCase::kAny))};
  return kKeys;
}

CommunicationConfig ReadCommunication(JsonObject& object) {
  const CommunicationConfig communication = ReadKeys(object, CommunicationKeys());
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

const KeyTable<EngineConfig>& EngineKeys() {
  using E = EngineConfig;
  static const KeyTable<E> kKeys = {
      BoolKey("wall_clock_breakdown", &E::wall_clock_breakdown,
              "print the time of each part of a step, every `steps_per_print` steps (10 without "
              "it)"),
      SameOnRanks(NumberKey("gradient_clipping", &E::gradient_clipping, {0},
                            "largest L2 norm of the gradient; 0: no limit")),
      IntKey("steps_per_print", &E::steps_per_print, {1},
             "steps between two progress lines; default: none"),
      BoolKey("dataloader_drop_last", &E::dataloader_drop_last,
              "drop the last batch if it is smaller"),
      SameOnRanks(BoolKey("broadcast_buffers", &E::broadcast_buffers,
                          "the model's buffers (running statistics, queues) become rank 0's at the "
                          "start and after each optimizer step; false: each rank keeps its own; as "
                          "the option of PyTorch's DistributedDataParallel; not a key of "
                          "DeepSpeed")),
      BoolKey("dump_state", &E::dump_state, "print the resolved configuration at the start"),
      BoolKey("memory_breakdown", &E::memory_breakdown,
              "print memory by category, as estimated and as used"),
      WordKey("log_level", &E::log_level, {std::begin(kLogLevels), std::end(kLogLevels)},
              "lowest level of the messages that rank 0 prints besides results and errors",
              WordCase::kAny),
      BoolKey("cuda_graph", &E::cuda_graph,
              "record a step once and replay it; GPUs, Adam or AdamW; not a key of DeepSpeed"),
      BoolKey("zero_allow_untested_optimizer", &E::allow_untested_optimizer,
              "at ZeRO stages 1 to 3, take a program's own optimizer that is not known to be "
              "element-wise; every optimizer of the configuration is allowed anyway")};
  return kKeys;
}

const KeyTable<EngineConfig>& CheckpointKeys() {
  static const KeyTable<EngineConfig> kKeys = {
      WordKey("tag_validation", &EngineConfig::tag_validation,
              {std::begin(kTagValidations), std::end(kTagValidations)},
              "what happens if the ranks give different tags", WordCase::kAny)};
  return kKeys;
}

void ReadCheckpoint(JsonObject object, EngineConfig& engine) {
  const std::string why = "dslaunch configures checkpoints by --checkpoint_dir; leave it out";
  for (const auto& [key, standard] :
       {std::pair("checkpoint_serialization", nlohmann::json(true)),
        std::pair("load_universal", nlohmann::json(false)),
        std::pair("use_node_local_storage", nlohmann::json(false)),
        std::pair("parallel_write", nlohmann::json{{"pipeline_stage", false}}),
        std::pair("writer", nlohmann::json())}) {
    object.RefuseUnlessStandard(key, standard, why);
  }
  ReadKeys(object, CheckpointKeys(), engine);
  object.RefuseUnknown();
}

const KeyTable<EngineConfig>& ActivationCheckpointingKeys() {
  using E = EngineConfig;
  static const KeyTable<E> kKeys = {
      {"number_checkpoints",
       [](JsonObject& object, const char* key, E& engine) {
         // DeepSpeed's configurations also use false for a model without checkpoints, so false is
         // accepted.
         if (object.TypeOf(key) == JsonType::boolean && !object.Bool(key).value_or(true)) return;
         engine.number_checkpoints = object.Int(key, 0).value_or(0);
       },
       [](const E& engine) {
         return engine.number_checkpoints > 0 ? nlohmann::ordered_json(engine.number_checkpoints)
                                              : nlohmann::ordered_json();
       },
       "number of parts that the model's layers are divided into, of which only the inputs are "
       "kept; in a pipeline set `pipeline.activation_checkpoint_interval`; default: none"},
      // These keys select where activations are stored and when the host waits for the device, so
      // they have no effect here.
      IgnoredBool<E>("partition_activations"),
      IgnoredBool<E>("contiguous_memory_optimization"),
      IgnoredBool<E>("synchronize_checkpoint_boundary")};
  return kKeys;
}

void ReadActivationCheckpointing(JsonObject object, EngineConfig& engine) {
  ReadKeys(object, ActivationCheckpointingKeys(), engine);
  object.RefuseUnlessStandard(
      "cpu_checkpointing", false,
      "activations are not moved to the host; leave it out, and choose number_checkpoints, or in "
      "a pipeline pipeline.activation_checkpoint_interval, which compute activations again "
      "instead of keeping them");
  object.RefuseUnlessStandard("profile", false,
                              "recomputation is not timed apart; use --profile, and leave it out");
  object.RefuseUnknown();
  if (engine.number_checkpoints > 0 && engine.pipeline.wanted()) {
    object.Fail("number_checkpoints",
                "is " + std::to_string(engine.number_checkpoints) +
                    ", but a pipeline computes activations again by "
                    "pipeline.activation_checkpoint_interval; leave it out and set that");
  }
}

// Reads the section "zero_optimization". In DeepSpeed's first format the section was the value true
// for stage 1, with allgather_size as a separate key.
ZeroConfig ReadZero(JsonObject& object) {
  if (object.TypeOf("zero_optimization") != JsonType::boolean) {
    return ParseZero(object.ObjectOrEmpty(
        "zero_optimization", "ZeRO: what is sharded over the ranks. Sizes are in elements."));
  }
  ZeroConfig zero;
  if (object.Bool("zero_optimization").value_or(false)) zero.stage = 1;
  zero.allgather_bucket_size = object.Int("allgather_size", 0).value_or(zero.allgather_bucket_size);
  ExplainLastKey("zero_optimization.allgather_bucket_size, beside zero_optimization: true");
  return zero;
}

// Accepts settings for DeepSpeed's reads and writes with device nvme. They have no effect, because
// the kernel performs the I/O here.
void AcceptAio(JsonObject aio) {
  static const KeyTable<EngineConfig> kKeys = {IgnoredInt<EngineConfig>("block_size"),
                                               IgnoredInt<EngineConfig>("queue_depth"),
                                               IgnoredInt<EngineConfig>("intra_op_parallelism"),
                                               IgnoredInt<EngineConfig>("thread_count"),
                                               IgnoredBool<EngineConfig>("single_submit"),
                                               IgnoredBool<EngineConfig>("overlap_events")};
  (void)ReadKeys(aio, kKeys);
  aio.RefuseUnlessOff({"use_gds"}, "is NVIDIA's GPUDirect Storage, which is not supported");
  aio.RefuseUnknown();
}

// Refuses settings that need all ranks in each step. With staleness, ranks complete steps
// independently.
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

// Refuses combinations of several ways to exchange gradients. 1-bit optimizers perform their own
// exchange, as in DeepSpeed, which supports them only at stage 0.
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
  if (engine.tensor_parallel.size > 1) refuse("tensor_parallel" + leave);
  if (engine.parallel.staleness) CheckStaleness(object, engine);
  if (!one_bit && engine.parallel.mode == Mode::kParameterServer) return;
  if (engine.communication.sum) {
    refuse("gradient_allreduce_op sum, because ranks exchange means; remove it");
  }
  if (engine.TrainsApart() && engine.precision.loss_scaler) {
    refuse("fp16, because a rank that skips a step would leave the others behind; use bf16");
  }
}

// Returns why the layers cannot be divided over `ranks` ranks, such as "is 3, which does not divide
// 4 ranks ...".
std::string PartsMisfit(const EngineConfig& engine, int64_t ranks) {
  const int64_t stages = engine.pipeline.stages;
  return "is " + std::to_string(engine.tensor_parallel.size) +
         (stages > 1 ? " with pipeline.stages " + std::to_string(stages) : std::string()) +
         ", which does not divide " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
         "; every replica needs one rank for each part" + (stages > 1 ? " of each stage" : "");
}

void CheckLamb(const JsonObject& object, const EngineConfig& engine) {
  if (engine.optimizer && engine.optimizer->IsLamb() && engine.precision.loss_scaler &&
      !engine.precision.loss_scaler->dynamic) {
    object.Fail("optimizer", "is " + engine.optimizer->name +
                                 ", which needs a dynamic loss scale, as in DeepSpeed");
  }
}

void CheckMesh(const JsonObject& object, const EngineConfig& engine, int64_t ranks) {
  const int64_t tensor = engine.tensor_parallel.size;
  if (tensor == 1) return;
  if (engine.pipeline.rank_order == RankOrder::kDataPipe) {
    object.Fail(
        "pipeline.rank_order",
        "is data_pipe, which cannot be combined with tensor_parallel: the ranks that divide "
        "a layer have consecutive numbers; leave it out");
  }
  if (ranks > 0 && ranks % (engine.pipeline.stages * tensor) != 0) {
    object.Fail("tensor_parallel.autotp_size", PartsMisfit(engine, ranks));
  }
}

// Returns the setting that prevents recording a step as a graph; "" if there is none.
std::string CudaGraphProblem(const EngineConfig& engine) {
  if (engine.pipeline.wanted()) return "a pipeline, whose stages wait for each other";
  if (engine.tensor_parallel.size > 1) {
    return "tensor_parallel, whose ranks decide together in each step";
  }
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
  if (engine.optimizer && !engine.optimizer->IsAdam()) {
    return "the optimizer " + engine.optimizer->name + "; use Adam or AdamW";
  }
  if (ScheduledMomentum(engine.scheduler.schedule, 0)) {
    return "the scheduler " + engine.scheduler.name + ", which changes betas";
  }
  return "";
}

void CheckCudaGraph(const JsonObject& object, const EngineConfig& engine) {
  const std::string problem = CudaGraphProblem(engine);
  if (!problem.empty()) object.Fail("cuda_graph", "cannot be combined with " + problem);
  const std::optional<FlopsProfilerConfig>& flops = engine.monitors.flops_profiler;
  if (flops && flops->profile_step > kGraphWarmUpSteps) {
    object.Fail("cuda_graph", "replays the step " + std::to_string(flops->profile_step) +
                                  " that flops_profiler.profile_step selects, and a replay runs "
                                  "no operators to count; profile one of the first " +
                                  std::to_string(kGraphWarmUpSteps));
  }
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

// Returns the resolved settings as JSON: all, or only those that must be equal on all ranks.
nlohmann::ordered_json ShowEngine(const EngineConfig& engine, bool same_on_ranks_only) {
  using Json = nlohmann::ordered_json;
  constexpr bool kSame = true, kOwn = false;
  Json json;
  const auto add = [&](const std::string& key, Json value, bool same_on_ranks) {
    if (same_on_ranks || !same_on_ranks_only) json[key] = std::move(value);
  };
  const auto add_table = [&](const auto& table, const auto& settings) {
    for (const auto& row : table) {
      if (row.show) add(row.key, row.show(settings), row.same_on_ranks);
    }
  };
  add("train_batch_size", engine.batch.train_batch_size, kOwn);
  add("train_micro_batch_size_per_gpu", engine.batch.micro_batch_size, kOwn);
  add("gradient_accumulation_steps", engine.batch.accumulation_steps, kSame);
  add("pipeline", ShowPipeline(engine.pipeline), kSame);
  add("tensor_parallel", ShowTensorParallel(engine.tensor_parallel), kSame);
  add("precision", ShowPrecision(engine.precision), kSame);
  add("zero_optimization", ShowZero(engine.zero), kSame);
  add("optimizer", engine.optimizer ? ShowOptimizer(*engine.optimizer) : Json(), kSame);
  add("scheduler", ShowScheduler(engine.scheduler), kSame);
  add("communication_data_type",
      DtypeName(engine.communication.dtype.value_or(engine.precision.model)), kSame);
  add_table(CommunicationKeys(), engine.communication);
  add("parallel", ShowParallel(engine.parallel), kSame);
  add("activation_checkpointing", ShowKeys(ActivationCheckpointingKeys(), engine), kOwn);
  add("checkpoint", ShowKeys(CheckpointKeys(), engine), kOwn);
  const Json monitors = ShowMonitors(engine.monitors);
  for (const auto& [key, section] : monitors.items()) add(key, section, kOwn);
  add_table(EngineKeys(), engine);
  return json;
}

}  // namespace

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
      MakeMesh(ranks, static_cast<int>(pipeline.stages), static_cast<int>(tensor_parallel.size),
               pipeline.rank_order);
  if (mesh) return *mesh;
  if (tensor_parallel.size == 1) {
    RefuseInput("pipeline.stages " + StagesMisfit(pipeline.stages, ranks));
  }
  RefuseInput("tensor_parallel.autotp_size " + PartsMisfit(*this, ranks));
}

EngineConfig ParseEngineConfig(const JsonObject& given, int64_t ranks,
                               const std::optional<OptimizerConfig>& program_optimizer,
                               const ProgramLayout& program) {
  const ResolvedAuto resolved = ResolveAuto(given.value());
  if (!resolved.missing.empty()) FailMissingValues(given, resolved.missing);
  JsonObject object = given.Over(resolved.engine);
  EngineConfig engine;
  engine.auto_notice = AutoNotice(resolved.chosen, kTrainerDefaults);
  const GivenBatch batch = ReadKeys(object, BatchKeys());
  engine.optimizer = program_optimizer;
  if (auto optimizer = object.Object(
          "optimizer",
          "Without this section a recipe trains with AdamW and DeepSpeed's defaults.")) {
    engine.optimizer = ParseOptimizer(*optimizer);
  }
  if (auto scheduler = object.Object(
          "scheduler",
          "The learning rate schedule. Without this section the learning rate is constant.")) {
    engine.scheduler = ParseScheduler(*scheduler, engine.optimizer.value_or(OptimizerConfig()));
  }
  engine.precision = ParsePrecision(object);
  engine.communication = ReadCommunication(object);
  engine.zero = ReadZero(object);
  engine.communication.overlap = engine.zero.overlap_comm;
  engine.pipeline = ParsePipeline(
      object.ObjectOrEmpty("pipeline", "Pipeline parallelism: each stage runs on its own ranks."),
      ranks, program.stages);
  engine.tensor_parallel = ParseTensorParallel(
      object.ObjectOrEmpty("tensor_parallel",
                           "Tensor parallelism: ranks with consecutive numbers divide each layer."),
      program.tensor);
  engine.parallel = ParseParallel(
      object.ObjectOrEmpty("parallel", "How ranks with whole models share the work."), ranks);
  ReadActivationCheckpointing(
      object.ObjectOrEmpty("activation_checkpointing",
                           "Computes activations again in the backward pass instead of keeping "
                           "them, with the same dropout; without a pipeline."),
      engine);
  engine.monitors = ParseMonitors(object);
  ReadCheckpoint(
      object.ObjectOrEmpty("checkpoint", "Checkpoints that programs save through the engine."),
      engine);
  ReadKeys(object, EngineKeys(), engine);
  AcceptAio(object.ObjectOrEmpty("aio",
                                 "How DeepSpeed reads and writes with device nvme; no "
                                 "effect."));
  RefuseUnsupportedKeys(object);
  object.RefuseUnknown();
  if (engine.cuda_graph) CheckCudaGraph(object, engine);
  CheckExchanges(object, engine);
  CheckMesh(object, engine, ranks);
  CheckLamb(object, engine);
  engine.batch = ranks > 0 ? ResolveBatch(batch.train, batch.micro, batch.accumulation,
                                          engine.MeshOf(static_cast<int>(ranks)).data, object)
                           : BatchConfig{0, batch.micro.value_or(kForwardSamples), 1};
  return engine;
}

EngineConfig ParseEngineConfig(const std::string& json_text, const std::string& source,
                               int64_t ranks, const std::string& optimizer_json,
                               const ProgramLayout& program) {
  std::optional<OptimizerConfig> optimizer;
  if (!optimizer_json.empty()) {
    const std::string optimizer_source = "the program's optimizer";
    const nlohmann::json json = ParseJson(optimizer_json, optimizer_source);
    optimizer = ParseOptimizer(JsonObject(json, optimizer_source, ""));
  }
  const nlohmann::json json = ParseJson(json_text, source);
  return ParseEngineConfig(JsonObject(json, source, ""), ranks, optimizer, program);
}

std::string DescribeEngineConfig(const EngineConfig& config) {
  using Json = nlohmann::ordered_json;
  return ShowEngine(config, /*same_on_ranks_only=*/false)
      .dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string SharedSettings(const EngineConfig& config) {
  return ShowEngine(config, /*same_on_ranks_only=*/true).flatten().dump();
}

}  // namespace dslaunch
