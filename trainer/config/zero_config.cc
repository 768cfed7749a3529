#include "trainer/config/zero_config.h"

#include "trainer/config/json/key_table.h"

namespace dslaunch {
namespace {

// Returns the name that `object` uses for a key. DeepSpeed's fields have names without "stage3_",
// which DeepSpeed accepts as well. Returns `key` if the object has neither name, or if `key` does
// not begin with "stage3_". Throws if the object has both names.
const char* Stage3Name(const JsonObject& object, const char* key) {
  constexpr std::string_view kPrefix = "stage3_";
  if (!std::string_view(key).starts_with(kPrefix)) return key;
  const char* const field = key + kPrefix.size();
  if (!object.value().contains(field)) return key;
  if (object.value().contains(key)) {
    object.Fail(field, std::string("is the same setting as ") + key + "; keep one of them");
  }
  return field;
}

// A key of which only DeepSpeed's default is accepted. The key belongs to an extension of ZeRO that
// dslaunch does not have, or to DeepSpeed's implementation.
struct FixedKey {
  const char* key;
  nlohmann::json standard;
  const char* why;
};

const std::vector<FixedKey>& FixedKeys() {
  static const char* const kZeroPlusPlus = "ZeRO++ is not supported; leave it out";
  static const char* const kMics = "MiCS is not supported; leave it out";
  static const std::vector<FixedKey> kKeys = {
      {"legacy_stage1", false, "DeepSpeed has removed it; leave it out"},
      {"load_from_fp32_weights", true,
       "checkpoints of dslaunch always hold the fp32 weights; leave it out"},
      {"zenflow", nullptr, "ZenFlow is not supported; leave it out"},
      {"zero_hpz_partition_size", 1, kZeroPlusPlus},
      {"zero_quantized_weights", false, kZeroPlusPlus},
      {"zero_quantized_nontrainable_weights", false, kZeroPlusPlus},
      {"zero_quantized_gradients", false, kZeroPlusPlus},
      {"zeropp_loco_param", nullptr, kZeroPlusPlus},
      {"mics_shard_size", -1, kMics},
      {"mics_hierarchical_params_gather", false, kMics},
      {"compute_grad_norm", true,
       "dslaunch always computes the norm, by which it also notices NaN; leave it out"},
      {"parameter_alignment", false,
       "the padding is for kernels that only DeepSpeed has; leave it out"},
      {"save_muon_momentum_buffer_in_memory", false, "Muon is not supported; leave it out"},
      {"leaf_module", nullptr,
       "it names Python classes, which dslaunch does not have; leave it out"}};
  return kKeys;
}

const KeyTable<ZeroConfig>& ZeroKeys() {
  using Z = ZeroConfig;
  static const KeyTable<Z> kKeys = {
      IntKey("stage", &Z::stage, {0, 3},
             "what is sharded: 0: nothing; 1: the optimizer's state; 2: gradients too; 3: "
             "parameters too"),
      BoolKey("contiguous_gradients", &Z::contiguous_gradients, kNoEffect),
      BoolKey("reduce_scatter", &Z::reduce_scatter, ""),
      IntKey("reduce_bucket_size", &Z::reduce_bucket_size, {0},
             "gradient elements in flight at a time; one message has at most 25 MiB"),
      BoolKey("allgather_partitions", &Z::allgather_partitions, kNoEffect),
      IntKey("allgather_bucket_size", &Z::allgather_bucket_size, {0},
             "parameter elements in flight at a time; one message has at most 25 MiB"),
      BoolKey("round_robin_gradients", &Z::round_robin_gradients, kNoEffect),
      BoolKey("ignore_unused_parameters", &Z::ignore_unused_parameters,
              "a parameter that got no gradient counts with zeros; false: it ends the run; at "
              "every stage, 0 too"),
      BoolKey("overlap_comm", &Z::overlap_comm,
              "overlap communication with the backward pass; default true at every stage"),
      IntKey("sub_group_size", &Z::sub_group_size, {0},
             "elements of a piece of an update, where gradients need memory of their own: in "
             "another dtype than the weights, or offloaded (there at most 16777216)"),
      IntKey("stage3_prefetch_bucket_size", &Z::prefetch_bucket_size, {0},
             "parameter elements that are gathered ahead"),
      IntKey("stage3_param_persistence_threshold", &Z::param_persistence_threshold, {0},
             "parameters smaller than this are never sharded"),
      IntKey("stage3_model_persistence_threshold", &Z::model_persistence_threshold, {0},
             "limit of all elements that are never sharded, together; default: no limit"),
      IntKey("stage3_max_live_parameters", &Z::max_live_parameters, {0},
             "limit of gathered elements at a time"),
      IntKey("stage3_max_reuse_distance", &Z::max_reuse_distance, {0},
             "parameters that are read again within this many elements are not released"),
      BoolKey("stage3_gather_16bit_weights_on_model_save", &Z::gather_16bit_weights_on_model_save,
              "accepted, no effect: checkpoints always hold the full weights, by name"),
      OlderName(BoolKey("stage3_gather_fp16_weights_on_model_save",
                        &Z::gather_16bit_weights_on_model_save,
                        "older name of stage3_gather_16bit_weights_on_model_save"))};
  return kKeys;
}

// Returns the keys that select one of DeepSpeed's implementations, or request behavior that
// dslaunch always has.
const KeyTable<ZeroConfig>& KeysWithoutEffect() {
  using Z = ZeroConfig;
  static const KeyTable<Z> kKeys = {IgnoredBool<Z>("elastic_checkpoint"),
                                    IgnoredBool<Z>("cpu_offload_use_pin_memory"),
                                    IgnoredBool<Z>("use_multi_rank_bucket_allreduce"),
                                    IgnoredBool<Z>("memory_efficient_linear"),
                                    IgnoredBool<Z>("pipeline_loading_checkpoint"),
                                    IgnoredBool<Z>("override_module_apply"),
                                    IgnoredBool<Z>("log_trace_cache_warnings"),
                                    IgnoredBool<Z>("enable_sanity_checks"),
                                    IgnoredBool<Z>("stage3_use_all_reduce_for_fetch_params"),
                                    IgnoredBool<Z>("stage3_allgather_sequential"),
                                    IgnoredInt<Z>("stage3_module_granularity_threshold"),
                                    IgnoredInt<Z>("stage3_partition_stream_chunk_size")};
  return kKeys;
}

using Offload = ZeroConfig::Offload;

KeyTable<Offload> SharedOffloadKeys() {
  return {WordKey("device", &Offload::device, {"none", "cpu", "nvme"},
                  "default none; `nvme`: files in `nvme_path`"),
          BoolKey("pin_memory", &Offload::pin_memory, ""),
          TextKey("nvme_path", &Offload::nvme_path,
                  "a folder on a disk of each node; required with `nvme`"),
          IgnoredInt<Offload>("buffer_count")};
}

const KeyTable<Offload>& OptimizerOffloadKeys() {
  static const KeyTable<Offload> kKeys = Joined(
      {SharedOffloadKeys(),
       {NumberKey("ratio", &Offload::ratio, {0, 1}, kNoEffect),
        IgnoredBool<Offload>("pipeline_read"), IgnoredBool<Offload>("pipeline_write"),
        IgnoredBool<Offload>("fast_init"), IgnoredNumber<Offload>("cpuadam_cores_perc", {0, 1})}});
  return kKeys;
}

const KeyTable<Offload>& ParameterOffloadKeys() {
  static const KeyTable<Offload> kKeys =
      Joined({SharedOffloadKeys(),
              {IgnoredInt<Offload>("buffer_size"), IgnoredInt<Offload>("max_in_cpu")}});
  return kKeys;
}

Offload ReadOffload(JsonObject object, const KeyTable<Offload>& table) {
  const Offload offload = ReadKeys(object, table);
  if (offload.device == OffloadDevice::kNvme && offload.nvme_path.empty()) {
    object.Fail("device",
                "is nvme, which needs nvme_path beside it: a folder on a disk of each node");
  }
  if (&table == &OptimizerOffloadKeys()) {
    object.RefuseUnlessOff({"super_offload"}, "is not supported; leave it out");
  }
  object.RefuseUnknown();
  return offload;
}

// Reads cpu_offload or cpu_offload_param, the older names of an offload to the CPU, which have no
// further settings.
void ReadOldOffload(JsonObject& object, const char* key, const char* section, Offload& offload,
                    const char* meaning) {
  const bool on = object.Bool(key).value_or(false);
  ExplainLastKey(meaning);
  if (!on) return;
  if (object.Object(section)) {
    object.Fail(key, std::string("is the older name of ") + section +
                         ", which is also set; keep one of them");
  }
  offload.device = OffloadDevice::kCpu;
}

void ReadOffloads(JsonObject& object, ZeroConfig& zero) {
  zero.offload_optimizer = ReadOffload(
      object.ObjectOrEmpty("offload_optimizer",
                           "Keeps the optimizer's state in host memory, which has no effect on "
                           "CPUs, or in files."),
      OptimizerOffloadKeys());
  zero.offload_param = ReadOffload(
      object.ObjectOrEmpty(
          "offload_param",
          "Keeps parameters in host memory, which has no effect on CPUs, or in files; stage 3."),
      ParameterOffloadKeys());
  ReadOldOffload(object, "cpu_offload", "offload_optimizer", zero.offload_optimizer,
                 "older name of `offload_optimizer` with the device cpu; default false");
  ReadOldOffload(object, "cpu_offload_param", "offload_param", zero.offload_param,
                 "older name of `offload_param` with the device cpu; default false");
}

}  // namespace

ZeroConfig ParseZero(JsonObject object) {
  ZeroConfig zero;
  ReadKeys(object, ZeroKeys(), zero, Stage3Name);
  ReadOffloads(object, zero);
  ReadKeys(object, KeysWithoutEffect(), zero, Stage3Name);
  for (const FixedKey& fixed : FixedKeys()) {
    object.RefuseUnlessStandard(fixed.key, fixed.standard, fixed.why);
  }
  object.RefuseUnknown();
  const bool offloads_optimizer = zero.offload_optimizer.device != OffloadDevice::kNone;
  const bool offloads_parameters = zero.offload_param.device != OffloadDevice::kNone;
  if (zero.stage == 0 && (offloads_optimizer || offloads_parameters)) {
    object.Fail(
        "stage",
        "is 0, at which nothing is offloaded; remove offload_optimizer and offload_param, or "
        "use stage 1, 2 or 3");
  }
  if (zero.stage < 3 && offloads_parameters) {
    object.Fail("offload_param", "needs stage 3: at stage " + std::to_string(zero.stage) +
                                     " every rank holds all parameters; leave it out");
  }
  return zero;
}

nlohmann::ordered_json ShowZero(const ZeroConfig& zero) {
  nlohmann::ordered_json json = ShowKeys(ZeroKeys(), zero);
  json["offload_optimizer"] = ShowKeys(OptimizerOffloadKeys(), zero.offload_optimizer);
  json["offload_param"] = ShowKeys(ParameterOffloadKeys(), zero.offload_param);
  return json;
}

}  // namespace dslaunch
