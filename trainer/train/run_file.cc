#include "trainer/train/run_file.h"

#include <nlohmann/json.hpp>

namespace dslaunch {

std::string RunJson(const RunFacts& facts) {
  const MemoryPlan& plan = facts.plan;
  nlohmann::ordered_json json = {{"model", facts.model},
                                 {"parameters", facts.parameters},
                                 {"dtype", facts.dtype},
                                 {"world_size", facts.world_size},
                                 {"zero_stage", facts.zero_stage}};
  if (facts.flops_per_step > 0) json["flops_per_step"] = facts.flops_per_step;
  json["memory_plan"] = {{"parameters", plan.parameters},
                         {"gradients", plan.gradients},
                         {"buckets", plan.buckets},
                         {"optimizer", plan.optimizer + plan.master_weights},
                         {"buffers", plan.buffers}};
  return json.dump();
}

}  // namespace dslaunch
