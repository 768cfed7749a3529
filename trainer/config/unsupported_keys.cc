#include "trainer/config/unsupported_keys.h"

#include "trainer/config/json/json_object.h"
#include "trainer/config/json/key_record.h"

namespace dslaunch {
namespace {

using nlohmann::json;

struct UnsupportedKey {
  const char* key;
  const char* why;
};

// Keys that are accepted only with a value that turns them off: null, false, {} or {"enabled":
// false}.
const UnsupportedKey kUnsupported[] = {
    {"autotuning",
     "is DeepSpeed's search for a configuration; remove it, and run dslaunch tune RECIPE"},
    {"compression_training", "is not supported; remove it"},
    {"curriculum_learning", "is not supported; order the data beforehand and remove it"},
    {"data_efficiency", "is not supported; order the data beforehand and remove it"},
    {"datastates_ckpt", "is not supported; dslaunch train writes checkpoints of its own"},
    {"eigenvalue", "is not supported; remove it"},
    {"elasticity",
     "is not supported; give --nnodes MIN:MAX to dslaunch and a batch size that the "
     "numbers of ranks divide"},
    {"expert_parallel", "is not supported; remove it"},
    {"nebula", "writes checkpoints to a service on Azure; use --checkpoint_dir"},
    {"progressive_layer_drop", "is not supported; remove it"},
    {"quantize_training", "is not supported; remove it"},
    {"sparse_attention", "is not supported; remove it"},
    {"sparse_gradients", "is not supported: gradients are always dense in dslaunch; remove it"},
    {"weight_quantization", "is for inference, which is not supported; remove it"},
};

struct StandardKey {
  const char* key;
  const char* standard;  // default of DeepSpeed, as JSON
  const char* why;       // reason for the refusal, which follows "is VALUE, but " in the message
};

constexpr char kMonitor[] =
    "it is an external service; leave it out and use tensorboard, csv_monitor or --metrics_jsonl";

// Keys that are accepted only with DeepSpeed's default. A section with "enabled": false may have
// any other values.
const StandardKey kStandard[] = {
    {"comet",
     R"({"enabled": false, "samples_log_interval": 100, "project": null, "workspace": null,
         "api_key": null, "experiment_name": null, "experiment_key": null, "online": null,
         "mode": null})",
     kMonitor},
    {"compile",
     R"({"deepcompile": false, "autoep_non_moe": false, "free_activation": false, "free_activation_threshold": 10485760,
         "offload_activation": false, "offload_activation_pin_memory": true,
         "offload_opt_states": false, "double_buffer": true, "symmetric_memory": false,
         "debug_log": false, "offload_parameters": false, "sync_before_reduce": false,
         "sync_after_reduce": false, "sync_before_allgather": false,
         "sync_after_allgather": false, "keep_int_input_tensors": true,
         "keep_all_input_tensors": false, "passes": null})",
     "DeepCompile is a compiler for Python models; leave it out"},
    {"graph_harvesting", "false", "DeepSpeed has removed it; leave it out"},
    {"hybrid_engine",
     R"({"enabled": false, "max_out_tokens": 512, "inference_tp_size": 1,
         "release_inference_cache": false, "pin_parameters": true, "tp_gather_partition_size": 8,
         "enable_cuda_graph": false})",
     "inference inside the training loop is not supported; leave it out"},
    {"managed_gradient_accumulation", "true",
     "the engine always finds step boundaries itself; leave it out"},
    {"seq_parallel_communication_data_type", R"("fp32")",
     "DeepSpeed-Ulysses is not supported; leave it out"},
    {"sequence_parallel_size", "1",
     "DeepSpeed-Ulysses is not supported; leave it out, and for long sequences set "
     "tensor_parallel.autotp_size and tensor_parallel.sequence_parallel, which divide the same "
     "activations"},
    {"timers", R"({"throughput": {"enabled": true, "synchronized": true}})",
     "throughput is always measured at no cost; leave it out"},
    {"use_data_before_expert_parallelism", "false",
     "expert parallelism is not supported; leave it out"},
    {"vocabulary_size", "null", "only the model's vocab_size has an effect; leave it out"},
    {"wandb", R"({"enabled": false, "group": null, "team": null, "project": "deepspeed"})",
     kMonitor},
};

}  // namespace

void RefuseUnsupportedKeys(JsonObject& engine) {
  for (const UnsupportedKey& item : kUnsupported) engine.RefuseUnlessOff({item.key}, item.why);
  for (const StandardKey& item : kStandard) {
    engine.RefuseUnlessStandard(item.key, json::parse(item.standard), item.why);
  }
  // These keys select how DeepSpeed works and do not change results, so they are ignored.
  for (const char* key :
       {"disable_allgather", "disable_python_gc", "zero_force_ds_cpu_optimizer"}) {
    (void)engine.Bool(key);
    ExplainLastKey("accepted, no effect");
  }
}

}  // namespace dslaunch
