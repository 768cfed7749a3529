#include "trainer/train/run_info.h"

#include <nlohmann/json.hpp>

namespace dslaunch {

std::string RunJson(const RunInfo& info) {
  const MemoryPlan& plan = info.plan;
  nlohmann::ordered_json json = {{"model", info.model},
                                 {"parameters", info.parameters},
                                 {"dtype", info.dtype},
                                 {"world_size", info.world_size},
                                 {"zero_stage", info.zero_stage},
                                 {"batch", info.batch},
                                 {"micro_batch", info.micro_batch},
                                 {"accumulation_steps", info.accumulation_steps},
                                 {"optimizer", info.optimizer},
                                 {"lr", info.lr},
                                 {"data", info.data}};
  if (info.flops_per_step > 0) json["flops_per_step"] = info.flops_per_step;
  json["memory_plan"] = {{"parameters", plan.parameters},
                         {"gradients", plan.gradients},
                         {"buckets", plan.buckets},
                         {"optimizer", plan.optimizer + plan.master_weights},
                         {"buffers", plan.buffers}};
  return json.dump();
}

}  // namespace dslaunch
