#include "trainer/config/zero_config.h"

#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

// What DeepSpeed's own defaults ask for, and all that is offered of these keys. Extensions of ZeRO
// that dslaunch does not have, and settings of how DeepSpeed does the work.
struct FixedKey {
  const char* key;
  nlohmann::json standard;
  const char* why;
};

const std::vector<FixedKey>& FixedKeys() {
  static const char* const kOldName =
      "this is an older name; write offload_optimizer or "
      "offload_param with a device";
  static const char* const kZeroPlusPlus = "ZeRO++ is not supported; leave it out";
  static const char* const kMics = "MiCS is not supported; leave it out";
  static const char* const kInternal =
      "it selects an implementation that only DeepSpeed has; leave it out";
  static const std::vector<FixedKey> kKeys = {
      {"cpu_offload", false, kOldName},
      {"cpu_offload_param", false, kOldName},
      {"cpu_offload_use_pin_memory", false, kOldName},
      {"stage3_gather_fp16_weights_on_model_save", false,
       "this is an older name; write stage3_gather_16bit_weights_on_model_save"},
      {"legacy_stage1", false, "DeepSpeed has removed it; leave it out"},
      {"elastic_checkpoint", false,
       "every checkpoint of dslaunch can be read on another number of ranks; leave it out"},
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
      {"use_multi_rank_bucket_allreduce", true, kInternal},
      {"stage3_module_granularity_threshold", 0, kInternal},
      {"stage3_use_all_reduce_for_fetch_params", false, kInternal},
      {"stage3_allgather_sequential", false, kInternal},
      {"stage3_partition_stream_chunk_size", 0, kInternal},
      {"memory_efficient_linear", true, kInternal},
      {"pipeline_loading_checkpoint", false, kInternal},
      {"override_module_apply", true, kInternal},
      {"log_trace_cache_warnings", false, kInternal},
      {"enable_sanity_checks", false, kInternal},
      {"save_muon_momentum_buffer_in_memory", false, "Muon is not supported; leave it out"},
      {"leaf_module", nullptr,
       "it names Python classes, which dslaunch does not have; leave it out"}};
  return kKeys;
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

}  // namespace

ZeroConfig ParseZero(JsonObject object) {
  ZeroConfig zero;
  const auto flag = [&](const char* key, bool& out) { out = object.Bool(key).value_or(out); };
  const auto size = [&](const char* key, int64_t& out) { out = object.Int(key, 0).value_or(out); };
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
  zero.offload_optimizer = ParseOffload(object.ObjectOrEmpty("offload_optimizer"), true);
  zero.offload_param = ParseOffload(object.ObjectOrEmpty("offload_param"), false);
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
