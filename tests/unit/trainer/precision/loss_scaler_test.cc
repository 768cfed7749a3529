#include "trainer/precision/loss_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace dslaunch::loss_scaler_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns the scale after each step. `overflows`: whether each step overflows.
std::vector<double> Scales(const LossScalerConfig& config, const std::vector<bool>& overflows) {
  LossScalerState state = InitialLossScalerState(config);
  std::vector<double> scales;
  for (const bool overflow : overflows) {
    const LossScaleDecision decision = UpdateLossScale(config, state, overflow);
    EXPECT_EQ(decision.skip_update, overflow);
    EXPECT_FALSE(decision.give_up);
    state = decision.next;
    scales.push_back(state.scale);
  }
  return scales;
}

LossScalerConfig Small() {
  LossScalerConfig config;
  config.initial_scale_power = 4;
  config.loss_scale_window = 2;
  return config;
}

TEST(LossScalerTest, HasDefaultsOfDeepSpeed) {
  EXPECT_EQ(InitialLossScalerState({}).scale, 65536);
  EXPECT_EQ(Scales({}, {true, true}), (std::vector<double>{65536, 32768}));
}

TEST(LossScalerTest, GrowsOnlyAfterWindow) {
  // The first growth needs one more good update than the window.
  EXPECT_THAT(Scales(Small(), {false, false, false, false, false}),
              ElementsAre(16, 16, 32, 32, 64));
}

TEST(LossScalerTest, GrowthRestoresHysteresis) {
  EXPECT_THAT(Scales(Small(), {true, false, true, true}), ElementsAre(16, 16, 8, 4));
  EXPECT_THAT(Scales(Small(), {true, false, false, false, true, true}),
              ElementsAre(16, 16, 16, 32, 32, 16));
}

TEST(LossScalerTest, GoodUpdateRestoresConsecutiveHysteresis) {
  LossScalerConfig config = Small();
  config.consecutive_hysteresis = true;
  EXPECT_THAT(Scales(config, {true, false, true, true}), ElementsAre(16, 16, 16, 8));
}

TEST(LossScalerTest, HalvesAtEveryOverflowWithoutHysteresis) {
  LossScalerConfig config = Small();
  config.hysteresis = 1;
  EXPECT_THAT(Scales(config, {true, true, false, true}), ElementsAre(8, 4, 4, 2));
}

TEST(LossScalerTest, GivesUpAtMinimumScale) {
  LossScalerConfig config = Small();
  config.hysteresis = 1;
  config.min_loss_scale = 12;
  LossScaleDecision decision = UpdateLossScale(config, InitialLossScalerState(config), true);
  EXPECT_EQ(decision.next.scale, 12) << "halved, but not below the smallest";
  EXPECT_FALSE(decision.give_up);
  decision = UpdateLossScale(config, decision.next, true);
  EXPECT_TRUE(decision.give_up);
  EXPECT_THAT(decision.reason, HasSubstr("loss scale 12"));

  config.raise_error_at_min_scale = false;
  EXPECT_THAT(Scales(config, {true, true, true}), ElementsAre(12, 12, 12));
}

TEST(LossScalerTest, KeepsStaticScale) {
  LossScalerConfig config;
  config.dynamic = false;
  config.static_scale = 128;
  EXPECT_EQ(Scales(config, std::vector<bool>(5, true)), std::vector<double>(5, 128));
  EXPECT_EQ(Scales(config, std::vector<bool>(3000, false)).back(), 128);
}

TEST(LossScalerTest, ExplainsChangesOfScale) {
  LossScalerState state = InitialLossScalerState(Small());
  EXPECT_EQ(UpdateLossScale(Small(), state, false).reason, "");
  LossScaleDecision decision = UpdateLossScale(Small(), state, true);
  EXPECT_EQ(decision.reason, "loss scale 16 stays for 1 more");
  EXPECT_EQ(UpdateLossScale(Small(), decision.next, true).reason, "loss scale 16 -> 8");
  LossScalerConfig config;
  config.dynamic = false;
  EXPECT_EQ(UpdateLossScale(config, state, true).reason, "loss scale 16 is static");
}

}  // namespace
}  // namespace dslaunch::loss_scaler_test
