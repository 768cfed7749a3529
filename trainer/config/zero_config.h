// Defines the section "zero_optimization" of an engine configuration.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dslaunch {

class JsonObject;

enum class OffloadDevice { kNone, kCpu, kNvme };

// Settings of ZeRO. Sizes are numbers of elements.
struct ZeroConfig {
  // States to shard. 0: none; 1: optimizer states; 2: also gradients; 3: also parameters.
  int stage = 0;
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  int64_t reduce_bucket_size = 500'000'000;
  bool allgather_partitions = true;
  int64_t allgather_bucket_size = 500'000'000;
  bool round_robin_gradients = false;
  bool ignore_unused_parameters = true;
  bool overlap_comm = true;
  int64_t sub_group_size = 1'000'000'000;
  // The following settings are for stage 3; their keys begin with stage3_.
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t param_persistence_threshold = 100'000;
  int64_t model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool gather_16bit_weights_on_model_save = false;

  struct Offload {
    OffloadDevice device = OffloadDevice::kNone;
    std::string nvme_path;  // folder for the device kNvme
    bool pin_memory = true;
    double ratio = 1.0;  // fraction of the optimizer's state that is offloaded
  };
  Offload offload_optimizer;
  Offload offload_param;
};

// Reads the section "zero_optimization". Throws TrainError kBadInput, naming the key.
ZeroConfig ParseZero(JsonObject object);
nlohmann::ordered_json ShowZero(const ZeroConfig& zero);

}  // namespace dslaunch
