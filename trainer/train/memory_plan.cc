#include "trainer/train/memory_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/base/format.h"
#include "trainer/checkpoint/write_plan.h"

namespace dslaunch {
namespace {

int64_t BytesOf(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

int64_t OptimizerStates(const OptimizerConfig& optimizer) {
  using Type = OptimizerConfig::Type;
  switch (optimizer.type) {
    case Type::kAdam:
    case Type::kAdamW:
      return optimizer.amsgrad ? 3 : 2;
    case Type::kLamb:
    case Type::kOneBitAdam:
      return 2;
    case Type::kOneBitLamb:
      return 3;
    // 0/1 Adam has two moments, the sums of updates, and the weights from which the sums start.
    case Type::kZeroOneAdam:
      return 4;
    case Type::kLion:
    case Type::kAdagrad:
      return 1;
    case Type::kSgd:
      return optimizer.momentum != 0 ? 1 : 0;
    case Type::kRmsprop:
      return 1 + (optimizer.momentum != 0 ? 1 : 0) + (optimizer.centered ? 1 : 0);
  }
  return 0;
}

// Returns whether the optimizer's step makes fp32 copies of the gradients.
bool CopiesGradients(const PrecisionConfig& precision) {
  return precision.master_weights && precision.grad_accumulation != Dtype::kFloat32;
}

// Returns the maximum number of parameter elements that are gathered at the same time at ZeRO stage
// 3 (ParameterGatherer). The unit that an operation needs is always gathered. Units that are needed
// again within the reuse distance and prefetched units are gathered as far as the limits allow.
int64_t GatheredElements(const ZeroConfig& zero, int64_t all, int64_t largest) {
  const int64_t ahead = std::min(zero.prefetch_bucket_size, all);
  const int64_t stays = std::min(std::max(zero.max_reuse_distance, ahead), all);
  const int64_t wanted = std::min(stays + ahead + largest, zero.max_live_parameters);
  return std::min(all, std::max(largest, wanted));
}

// Returns the maximum bytes of the passes and `buckets` together if the bytes of buckets do not
// depend on the order of the gradients; 0 if the memory of the passes is not known.
int64_t AtTheSameTime(const PassMemory& passes, int64_t buckets) {
  return passes.peak > 0 ? buckets + passes.peak_with_gradients : 0;
}

// Returns, for each parameter, how many of the parameters before it are trained.
std::vector<size_t> TrainedBefore(const std::vector<ShardedParameter>& parameters) {
  std::vector<size_t> trained(parameters.size());
  for (size_t i = 1; i < parameters.size(); ++i) {
    trained[i] = trained[i - 1] + (parameters[i - 1].trained ? 1 : 0);
  }
  return trained;
}

// Bytes of one element as a weight, as an accumulated gradient, and as a gradient in a message.
struct ElementBytes {
  int64_t weight;
  int64_t sum;
  int64_t message;
};

// Returns the bytes of a unit's gradients while they are sent, without the list of its parameters.
GradientUnit SentUnit(const FlatParameter& unit, const EngineConfig& config, int ranks,
                      const ElementBytes& element) {
  const int64_t n = unit.shard_elements;
  const ZeroConfig& zero = config.zero;
  // Unless the configuration names a dtype, gradients of parameters with a wider dtype are sent in
  // that wider dtype.
  const int64_t sent_bytes =
      config.communication.dtype ? element.message : std::max(element.message, element.weight);
  const bool own_message = zero.stage > 1 || sent_bytes != element.sum;
  const int64_t received = zero.reduce_scatter ? (ranks - 1) * n * sent_bytes : 0;
  const bool own_sum = zero.stage > 1 && config.batch.accumulation_steps > 1;
  GradientUnit sent;
  sent.message = own_message ? ranks * n * sent_bytes : 0;
  sent.others = received + (own_sum ? n * element.sum : 0);
  return sent;
}

// Sets the buckets of `plan` for the messages of `sent_units`. `units` contains the units that are
// sent during the backward pass; `filling` is the bytes of all other units.
void PlanBuckets(const std::vector<GradientUnit>& units,
                 const std::vector<GradientUnit>& sent_units, int64_t filling, bool overlap,
                 const PassMemory& passes, MemoryPlan& plan) {
  plan.buckets = MostOnTheirWay(units, overlap) + filling;
  plan.passes_with_buckets = AtTheSameTime(passes, plan.buckets);
  if (passes.arrivals.empty()) return;
  std::vector<GradientArrival> alone;
  for (const GradientArrival& arrival : passes.arrivals) {
    alone.emplace_back().parameter = arrival.parameter;
  }
  plan.buckets = MostWithPasses(sent_units, overlap, alone, /*at_end=*/0);
  plan.passes_with_buckets = MostWithPasses(sent_units, overlap, passes.arrivals, passes.at_end);
}

// Sets the bytes of all states in `plan` to the bytes of a rank whose states are sharded (ZeRO).
void PlanShards(const ModelSizes& model, const EngineConfig& config, int ranks,
                const PassMemory& passes, MemoryPlan& plan) {
  const PrecisionConfig& precision = config.precision;
  const ZeroConfig& zero = config.zero;
  const auto element_bytes = [&](size_t parameter) {
    const bool norm = model.shardable[parameter].dtype == 1 && precision.batch_norm_float32;
    return norm ? 4 : BytesOf(precision.model);
  };
  const int64_t accumulated_bytes = BytesOf(precision.grad_accumulation);
  const Dtype travels_in =
      zero.stage == 1 ? TravelDtype(config) : config.communication.dtype.value_or(precision.model);
  const int64_t message_bytes = ranks == 1 ? accumulated_bytes : BytesOf(travels_in);
  std::vector<ShardedParameter> parameters = model.shardable;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].dtype = static_cast<int>(element_bytes(i));
  }
  plan.gradients = plan.optimizer = plan.master_weights = plan.buckets = plan.update = 0;
  const auto offload = [&plan](const ZeroConfig::Offload& to, int64_t bytes) {
    if (to.device == OffloadDevice::kCpu) plan.in_main_memory += bytes;
    if (to.device == OffloadDevice::kNvme) plan.in_files += bytes;
  };
  // All units of parameters, in the order in which they are sent.
  std::vector<GradientUnit> sent_units;
  std::vector<GradientUnit> units;  // all units of parameters except those that `filling` counts
  const std::vector<size_t> trained = TrainedBefore(parameters);
  int64_t filling = 0;  // stage 3: bytes of the units that fill during the whole backward pass
  int64_t gathered = 0, largest = 0, widest = 0;  // stage 3: elements of gathered units
  for (const FlatParameter& unit :
       CutIntoUnits(parameters, zero, BucketElements(zero, message_bytes), ranks)) {
    const int64_t n = unit.shard_elements;
    const int64_t bytes = element_bytes(unit.parameters[0]);
    plan.parameters += (unit.persistent ? ranks : 1) * n * bytes - unit.elements * bytes;
    if (!unit.persistent) {
      offload(zero.offload_param, n * bytes);
      gathered += ranks * n;
      largest = std::max(largest, ranks * n);
      widest = std::max(widest, bytes);
    }
    if (!unit.trained) continue;
    const int64_t sum_bytes = std::max(accumulated_bytes, bytes);
    plan.gradients += (zero.stage == 1 ? ranks : 1) * n * sum_bytes;
    const int64_t masters = precision.master_weights ? 4 * n : 0;
    plan.master_weights += masters;
    if (CopiesGradients(precision)) plan.update += 4 * std::min(n, unit.elements);
    const int64_t states = OptimizerStates(*config.optimizer) * std::min(n, unit.elements) *
                           (precision.master_weights ? 4 : bytes);
    plan.optimizer += states;
    offload(zero.offload_optimizer, masters + states);
    GradientUnit& travels =
        sent_units.emplace_back(SentUnit(unit, config, ranks, {bytes, sum_bytes, message_bytes}));
    for (const size_t i : unit.parameters) travels.parameters.push_back(trained[i]);
    if (zero.stage == 3 && unit.persistent) {
      filling += travels.message + travels.others;
    } else {
      units.push_back(travels);
    }
  }
  plan.gathered = widest * GatheredElements(zero, gathered, largest);
  PlanBuckets(units, sent_units, filling, config.communication.overlap, passes, plan);
}

// Returns whether ranks with whole models exchange less data than all gradients of each step
// (GradientExchange).
bool IsLocal(const EngineConfig& config) {
  using Mode = ParallelConfig::Mode;
  const Mode mode = config.parallel.mode;
  return mode == Mode::kLocalSgd || mode == Mode::kDiloco || mode == Mode::kPowerSgd ||
         config.optimizer->CompressesExchanges();
}

// Returns the maximum bytes that the exchange of gradients keeps besides the optimizer's state of
// each parameter. `weight_bytes` is the size of one weight.
int64_t ExchangeStates(const ModelSizes& model, const EngineConfig& config, int64_t ranks,
                       int64_t weight_bytes) {
  const ParallelConfig& parallel = config.parallel;
  int64_t bytes = 0;
  if (parallel.mode == ParallelConfig::Mode::kDiloco) {
    bytes += model.trained * weight_bytes * (parallel.outer_momentum != 0 ? 2 : 1);
  }
  if (parallel.mode == ParallelConfig::Mode::kPowerSgd && parallel.use_error_feedback) {
    bytes += model.trained * BytesOf(config.precision.grad_accumulation);
  }
  // The optimizer keeps compression errors in fp32: one for each element, and one for each element
  // of this rank's part.
  if (config.optimizer->CompressesExchanges() && ranks > 1) {
    bytes += 4 * (model.trained + (model.trained + ranks - 1) / ranks);
  }
  return bytes;
}

// Sets the memory of a parameter server in `plan`. Every rank needs room for one message of all
// gradients.
void PlanServer(const ModelSizes& model, const EngineConfig& config, int64_t ranks,
                MemoryPlan& plan) {
  const PrecisionConfig& precision = config.precision;
  const int64_t share = (model.trained + config.parallel.servers - 1) / config.parallel.servers;
  const int64_t weight_bytes = precision.master_weights ? 4 : BytesOf(precision.model);
  plan.buckets +=
      model.trained * BytesOf(ranks == 1 ? precision.grad_accumulation : TravelDtype(config));
  plan.optimizer = OptimizerStates(*config.optimizer) * share * weight_bytes;
  plan.master_weights = share * weight_bytes;
}

// Returns the number of ranks that share a node's memory; 1 if the number is not known.
int64_t RanksOnNode(const PlanPlace& place) {
  return std::min(place.ranks, std::max<int64_t>(place.ranks_per_node, 1));
}

}  // namespace

MemoryPlan PlanMemory(const ModelSizes& model, const EngineConfig& config,
                      const PassMemory& passes) {
  const PrecisionConfig& precision = config.precision;
  const int64_t model_bytes = BytesOf(precision.model);
  const int64_t norm_extra = precision.batch_norm_float32 ? 4 - model_bytes : 0;
  const int64_t trained_bytes = model.trained * model_bytes + model.batch_norm_trained * norm_extra;
  MemoryPlan plan;
  plan.parameters = trained_bytes + model.frozen * model_bytes;
  plan.buffers = model.buffers * model_bytes + model.batch_norm_buffers * norm_extra +
                 model.other_buffer_bytes;
  const bool in_model_dtype = precision.grad_accumulation == precision.model;
  plan.gradients =
      in_model_dtype ? trained_bytes : model.trained * BytesOf(precision.grad_accumulation);
  if (in_model_dtype && config.batch.accumulation_steps > 1) plan.buckets = plan.gradients;
  const Dtype travels_in = TravelDtype(config);
  const int64_t ranks = config.batch.train_batch_size /
                        (config.batch.micro_batch_size * config.batch.accumulation_steps);
  const bool is_server = config.parallel.mode == ParallelConfig::Mode::kParameterServer;
  if (travels_in != precision.grad_accumulation && ranks > 1 && !is_server && !IsLocal(config)) {
    // Unless the configuration names a dtype, gradients of fp32 batch norms are sent in the dtype
    // in which they accumulate, so they need no second buffer.
    const bool norms_as_they_are = precision.batch_norm_float32 && !config.communication.dtype;
    plan.buckets +=
        (model.trained - (norms_as_they_are ? model.batch_norm_trained : 0)) * BytesOf(travels_in);
  }
  plan.master_weights = precision.master_weights ? model.trained * 4 : 0;
  plan.update = CopiesGradients(precision) ? model.trained * 4 : 0;
  plan.optimizer = OptimizerStates(*config.optimizer) *
                   (precision.master_weights ? model.trained * 4 : trained_bytes);
  plan.optimizer +=
      ExchangeStates(model, config, ranks, precision.master_weights ? 4 : model_bytes);
  if (is_server) PlanServer(model, config, ranks, plan);
  plan.passes = passes.peak;
  plan.passes_with_buckets = AtTheSameTime(passes, plan.buckets);
  if (config.zero.stage > 0) PlanShards(model, config, static_cast<int>(ranks), passes, plan);
  return plan;
}

int64_t PlanCopies(const ModelSizes& model, const EngineConfig& config, bool adapters_only,
                   bool on_gpu) {
  const PrecisionConfig& precision = config.precision;
  const BatchConfig& batch = config.batch;
  const int64_t model_bytes = BytesOf(precision.model);
  const int64_t ranks =
      batch.train_batch_size / (batch.micro_batch_size * batch.accumulation_steps);
  const int64_t weight_bytes = precision.master_weights ? 4 : model_bytes;
  const int64_t divided = model.trained * weight_bytes * (1 + OptimizerStates(*config.optimizer)) +
                          (adapters_only ? 0 : model.frozen * model_bytes);
  // Each rank writes its own shards, or its share of the tensors that all ranks hold, and its own
  // running means of batch norms, so the copies contain these bytes.
  const int64_t writers =
      config.zero.stage > 0 ? ranks : std::clamp<int64_t>(divided / kMinShareBytes, 1, ranks);
  const int64_t copy = (divided + writers - 1) / writers + model.buffers * model_bytes +
                       model.other_buffer_bytes +
                       ExchangeStates(model, config, ranks, weight_bytes);
  return (on_gpu ? 3 : 2) * copy;
}

std::string PlanText(const MemoryPlan& plan) {
  std::string text =
      plan.passes > 0 ? "memory of one rank:" : "memory of one rank, without activations:";
  const auto add = [&text](const char* what, int64_t bytes) {
    text += Format("\n  %-14s %12s", what, BytesText(bytes).c_str());
  };
  add("parameters", plan.parameters);
  if (plan.gathered > 0) add("gathered", plan.gathered);
  add("gradients", plan.gradients);
  add("buckets", plan.buckets);
  add("optimizer", plan.optimizer);
  add("master weights", plan.master_weights);
  add("buffers", plan.buffers);
  if (plan.passes > 0) add("passes", plan.passes);
  if (plan.update > 0) add("update", plan.update);
  if (plan.in_files > 0) add("of it in files", plan.in_files);
  add("at one time", plan.total());
  if (plan.copies > 0) add("copies", plan.copies);
  return text;
}

std::string PlaceText(const std::vector<MemoryPlan>& stages, const PlanPlace& place) {
  int64_t largest = 0, on_device = 0, copies = 0;
  for (const MemoryPlan& plan : stages) {
    largest = std::max(largest, plan.total());
    on_device = std::max(on_device, plan.on_device());
    copies = std::max(copies, plan.copies);
  }
  const int64_t on_node = RanksOnNode(place);
  const int64_t node = on_node * (largest + copies);
  std::string text =
      Format("%lld %s", static_cast<long long>(place.ranks), place.ranks == 1 ? "rank" : "ranks");
  if (place.ranks_per_node > 0) {
    text += Format(", %lld on a node: %s together", static_cast<long long>(on_node),
                   BytesText(node).c_str());
  }
  const auto fits = [&text](int64_t wanted, int64_t there, const char* what) {
    text += Format("; %s %s, which is %s", what, BytesText(there).c_str(),
                   wanted <= there ? "enough" : "too little");
  };
  if (place.device_bytes > 0) {
    fits(on_device, place.device_bytes, "a GPU of this machine has");
    if (copies == 0) return text;
    text += Format("; copies in memory take %s of a node's main memory",
                   BytesText(on_node * copies).c_str());
    if (place.node_bytes > 0) fits(on_node * copies, place.node_bytes, "this machine has");
  } else if (place.node_bytes > 0) {
    fits(node, place.node_bytes,
         place.ranks_per_node > 0 ? "this machine has" : "for one of them this machine has");
  }
  return text;
}

std::string PlanJson(const MemoryPlan& plan, const PlanPlace& place, int stage) {
  const bool on_gpu = place.device_bytes > 0;
  return nlohmann::ordered_json{
      {"plan",
       {{"ranks", place.ranks},
        {"stage", stage},
        {"parameters", plan.parameters},
        {"gathered", plan.gathered},
        {"gradients", plan.gradients},
        {"buckets", plan.buckets},
        {"optimizer", plan.optimizer},
        {"master_weights", plan.master_weights},
        {"buffers", plan.buffers},
        {"passes", plan.passes},
        {"update", plan.update},
        {"in_main_memory", plan.in_main_memory},
        {"in_files", plan.in_files},
        {"copies", plan.copies},
        {"together", plan.total()},
        {"on_gpu", on_gpu},
        {"needs", on_gpu ? plan.on_device() : plan.total() + plan.copies},
        {"has", on_gpu ? place.device_bytes : place.node_bytes / RanksOnNode(place)}}}}
      .dump();
}

std::string ComparisonText(const MemoryPlan& plan, const MemoryBytes& actual) {
  std::string text = Format("%-26s %12s %12s", "memory of one rank", "estimated", "at most");
  const auto add = [&text](const char* what, int64_t predicted, int64_t was) {
    text +=
        Format("\n  %-24s %12s %12s", what, BytesText(predicted).c_str(), BytesText(was).c_str());
  };
  add("parameters", plan.parameters, actual.parameters);
  add("gradients", plan.gradients, actual.gradients);
  add("buckets", plan.buckets, actual.buckets);
  add("optimizer and masters", plan.optimizer + plan.master_weights, actual.optimizer);
  add("buffers", plan.buffers, actual.buffers);
  const auto add_measured = [&text](const char* what, int64_t was) {
    text += Format("\n  %-24s %12s %12s", what, "", BytesText(was).c_str());
  };
  add_measured("activations", actual.activations);
  if (actual.tensors > 0) add("all tensors, peak", plan.total(), actual.tensors);
  add_measured("whole process, peak", actual.peak_rss);
  return text;
}

}  // namespace dslaunch
