#include <nlohmann/json.hpp>

#include "trainer/config/engine_config.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string DescribeEngineConfig(const EngineConfig& config) {
  Json json;
  json["train_batch_size"] = config.batch.train_batch_size;
  return json.dump(2);
}

}  // namespace dslaunch
