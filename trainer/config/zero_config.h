// The section "zero_optimization" of an engine configuration.
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
  int stage = 0;  // 0: nothing sharded; 1: optimizer states; 2: gradients too; 3: parameters too
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  int64_t reduce_bucket_size = 500'000'000;
  bool allgather_partitions = true;
  int64_t allgather_bucket_size = 500'000'000;
  bool round_robin_gradients = false;
  bool ignore_unused_parameters = true;
  bool overlap_comm = true;
  int64_t sub_group_size = 1'000'000'000;
  // Settings of stage 3, whose keys begin with stage3_.
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t param_persistence_threshold = 100'000;
  int64_t model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool gather_16bit_weights_on_model_save = false;

  struct Offload {
    OffloadDevice device = OffloadDevice::kNone;
    std::string nvme_path;  // folder for kNvme
    bool pin_memory = true;
    double ratio = 1.0;  // offloaded share of the optimizer's state
  };
  Offload offload_optimizer;
  Offload offload_param;
};

// Throws TrainError kBadInput.
ZeroConfig ParseZero(JsonObject object);
nlohmann::ordered_json ShowZero(const ZeroConfig& zero);

}  // namespace dslaunch
