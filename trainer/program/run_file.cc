#include "trainer/program/run_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/contract/run_files.h"
#include "trainer/program/report.h"

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

std::string RankDir() {
  const char* folder = std::getenv(kRankDirVariable);
  return folder == nullptr ? "" : folder;
}

void WriteRankFile(const std::string& name, const std::string& text) {
  const std::string file = RankDir() + "/" + name;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  errno = 0;
  stream << text << "\n";
  stream.close();
  if (stream) return;
  PrintLine("the job's report will lack " + file +
            ", which cannot be written: " + std::strerror(errno));
}

}  // namespace dslaunch
