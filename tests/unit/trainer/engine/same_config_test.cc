#include "trainer/engine/same_config.h"

#include <gmock/gmock.h>

#include <functional>

#include "trainer/config/engine_config.h"

namespace dslaunch::same_config_test {
namespace {

using ::testing::HasSubstr;

// Returns the error if rank 1 of three has a configuration that differs by `change`.
std::string Said(const std::function<void(EngineConfig&)>& change) {
  EngineConfig config;
  config.optimizer.emplace();
  EngineConfig other = config;
  change(other);
  return ConfigDisagreement(
      {SharedSettings(config), SharedSettings(other), SharedSettings(config)});
}

TEST(SameConfigTest, NamesFirstDifferenceWithRanksAndValues) {
  EXPECT_EQ(Said([](EngineConfig&) {}), "");
  EXPECT_THAT(Said([](EngineConfig& config) {
                config.zero.stage = 2;
                config.pipeline.virtual_stages = 2;
              }),
              HasSubstr("differ in pipeline.virtual_stages (ranks 0, 2: 1; rank 1: 2)"));
  EXPECT_THAT(Said([](EngineConfig& config) { config.precision.loss_scaler.emplace(); }),
              HasSubstr("differ in precision.loss_scaler (ranks 0, 2: null; rank 1: none)"));
  EXPECT_THAT(Said([](EngineConfig& config) { config.optimizer.reset(); }),
              HasSubstr("differ in optimizer"));
  EXPECT_THAT(Said([](EngineConfig& config) { config.broadcast_buffers = false; }),
              HasSubstr("differ in broadcast_buffers (ranks 0, 2: true; rank 1: false)"));
}

TEST(SameConfigTest, IgnoresDifferencesInPrintedOutput) {
  EXPECT_EQ(Said([](EngineConfig& config) {
              config.steps_per_print = 5;
              config.dump_state = true;
              config.log_level = EngineLogLevel::kDebug;
            }),
            "");
}

}  // namespace
}  // namespace dslaunch::same_config_test
