#include "trainer/config/zero_config.h"

#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

// DeepSpeed's fields have names without "stage3_", which it takes as well. Returns the one of both
// that `object` has; `key` if it has none, or begins otherwise.
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

// What DeepSpeed's own defaults ask for, and all that is offered of these keys. Extensions of ZeRO
// that dslaunch does not have, and settings of how DeepSpeed does the work.
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

// Choose among DeepSpeed's implementations, or ask for what dslaunch always does. They change no
// result, so any value will do.
void AcceptWithoutEffect(JsonObject& object) {
  for (const char* key :
       {"elastic_checkpoint", "cpu_offload_use_pin_memory", "use_multi_rank_bucket_allreduce",
        "memory_efficient_linear", "pipeline_loading_checkpoint", "override_module_apply",
        "log_trace_cache_warnings", "enable_sanity_checks",
        "stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential"}) {
    (void)object.Bool(Stage3Name(object, key));
  }
  for (const char* key :
       {"stage3_module_granularity_threshold", "stage3_partition_stream_chunk_size"}) {
    (void)object.Int(Stage3Name(object, key), 0);
  }
}

ZeroConfig::Offload ParseOffload(JsonObject object, bool optimizer) {
  ZeroConfig::Offload offload;
  const std::string device = object.Word("device", {"cpu", "none", "nvme"}).value_or("none");
  if (device == "cpu") offload.device = OffloadDevice::kCpu;
  if (device == "nvme") offload.device = OffloadDevice::kNvme;
  offload.pin_memory = object.Bool("pin_memory").value_or(true);
  offload.nvme_path = object.String("nvme_path").value_or("");
  if (device == "nvme" && offload.nvme_path.empty()) {
    object.Fail("device",
                "is nvme, which needs nvme_path beside it: a folder on a disk of each node");
  }
  object.Int("buffer_count", 0);  // of DeepSpeed's own reading and writing
  if (optimizer) {
    offload.ratio = object.Number("ratio", 0, 1).value_or(1);
    object.Bool("pipeline_read");
    object.Bool("pipeline_write");
    object.Bool("fast_init");
    object.RefuseUnlessOff({"super_offload"}, "is not supported; leave it out");
    object.Number("cpuadam_cores_perc", 0, 1);  // of super_offload
  } else {
    object.Int("buffer_size", 0);
    object.Int("max_in_cpu", 0);
  }
  object.RefuseUnknown();
  return offload;
}

// cpu_offload and cpu_offload_param, the older names of an offload to the CPU without settings.
void ParseOldOffload(JsonObject& object, const char* key, const char* section,
                     ZeroConfig::Offload& offload) {
  if (!object.Bool(key).value_or(false)) return;
  if (object.Object(section)) {
    object.Fail(key, std::string("is the older name of ") + section +
                         ", which is also set; keep one of them");
  }
  offload.device = OffloadDevice::kCpu;
}

void ParseOffloads(JsonObject& object, ZeroConfig& zero) {
  zero.offload_optimizer = ParseOffload(object.ObjectOrEmpty("offload_optimizer"), true);
  zero.offload_param = ParseOffload(object.ObjectOrEmpty("offload_param"), false);
  ParseOldOffload(object, "cpu_offload", "offload_optimizer", zero.offload_optimizer);
  ParseOldOffload(object, "cpu_offload_param", "offload_param", zero.offload_param);
}

}  // namespace

ZeroConfig ParseZero(JsonObject object) {
  ZeroConfig zero;
  const auto flag = [&](const char* key, bool& out) {
    out = object.Bool(Stage3Name(object, key)).value_or(out);
  };
  const auto size = [&](const char* key, int64_t& out) {
    out = object.Int(Stage3Name(object, key), 0).value_or(out);
  };
  zero.stage = static_cast<int>(object.Int("stage", 0, 3).value_or(0));
  flag("contiguous_gradients", zero.contiguous_gradients);
  flag("reduce_scatter", zero.reduce_scatter);
  size("reduce_bucket_size", zero.reduce_bucket_size);
  flag("allgather_partitions", zero.allgather_partitions);
  size("allgather_bucket_size", zero.allgather_bucket_size);
  flag("round_robin_gradients", zero.round_robin_gradients);
  flag("ignore_unused_parameters", zero.ignore_unused_parameters);
  zero.overlap_comm = object.Bool("overlap_comm");
  size("sub_group_size", zero.sub_group_size);
  size("stage3_prefetch_bucket_size", zero.prefetch_bucket_size);
  size("stage3_param_persistence_threshold", zero.param_persistence_threshold);
  size("stage3_model_persistence_threshold", zero.model_persistence_threshold);
  size("stage3_max_live_parameters", zero.max_live_parameters);
  size("stage3_max_reuse_distance", zero.max_reuse_distance);
  flag("stage3_gather_16bit_weights_on_model_save", zero.gather_16bit_weights_on_model_save);
  flag("stage3_gather_fp16_weights_on_model_save", zero.gather_16bit_weights_on_model_save);
  ParseOffloads(object, zero);
  AcceptWithoutEffect(object);
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

}  // namespace dslaunch
