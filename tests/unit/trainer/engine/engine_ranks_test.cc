// Tests that the engines of several ranks make the same decisions.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "dslaunch/engine.h"
#include "tests/unit/trainer/ranks.h"
#include "trainer/config/engine_config.h"

namespace dslaunch::engine_ranks_test {
namespace {

constexpr int kRanks = 2;
constexpr double kInf = std::numeric_limits<double>::infinity();

// A model in which the gradients of `early` and `late` equal the input.
struct Sum : torch::nn::Module {
  Sum() {
    early = register_parameter("early", at::ones({3}));
    late = register_parameter("late", at::ones({2}));
  }
  at::Tensor forward(const at::Tensor& x) { return (early * x).sum() + (late * x).sum(); }
  at::Tensor early, late;
};

EngineConfig Config(int64_t accumulation) {
  EngineConfig config;
  config.batch = {kRanks * accumulation, 1, accumulation};
  config.optimizer.emplace().type = OptimizerConfig::Type::kSgd;
  config.optimizer->lr = 0.25;
  return config;
}

// Trains `steps` steps on input(step, micro-batch), which differs between ranks.
void Train(Engine<Sum>& engine, int64_t steps,
           const std::function<double(int64_t step, int64_t part)>& input) {
  for (int64_t step = 1; step <= steps; ++step) {
    for (int64_t part = 1; part <= engine.core().accumulation_steps(); ++part) {
      engine.Backward(engine.Forward(at::full({1}, input(step, part))));
      engine.Step();
    }
  }
}

TEST(EngineRanksTest, SkipsStepOnAllRanksAfterOverflowOnOne) {
  struct Mode {
    Dtype model, accumulation;
    std::optional<Dtype> communication;
    bool prescale, overlap;
  };
  constexpr auto k16 = Dtype::kFloat16, kBf16 = Dtype::kBFloat16, k32 = Dtype::kFloat32;
  const Mode modes[] = {
      {k16, k32, {}, false, true},     {k16, k32, k32, false, false}, {k16, k32, kBf16, true, true},
      {k16, k16, {}, false, true},     {k16, k16, {}, true, false},   {kBf16, k32, {}, false, true},
      {kBf16, kBf16, {}, false, true}, {k32, k32, {}, false, true},
  };
  for (const Mode& mode : modes) {
    EngineConfig config = Config(2);
    config.precision.model = mode.model;
    config.precision.master_weights = mode.model != k32;
    config.precision.grad_accumulation = mode.accumulation;
    config.precision.skip_overflow = true;
    if (mode.model == k16) {
      config.precision.loss_scaler.emplace().initial_scale_power = 8;
      config.precision.loss_scaler->hysteresis = 1;
    }
    config.communication.dtype = mode.communication;
    config.communication.prescale = mode.prescale;
    config.communication.overlap = mode.overlap;
    std::mutex mutex;
    std::vector<std::vector<double>> seen;  // values of each rank
    const auto errors = RunRanks(kRanks, [&](const ProcessGroup& group) {
      auto model = std::make_shared<Sum>();
      auto engine = Initialize(config, model, group);
      Train(engine, 4, [&](int64_t step, int64_t part) {
        if (group.rank() == 1 && step == 2 && part == 1) return kInf;
        if (group.rank() == 0 && step == 4 && part == 2) return std::nan("");
        return 0.5 + group.rank();
      });
      const std::lock_guard lock(mutex);
      seen.push_back({static_cast<double>(engine.skipped_steps()), engine.loss_scale(),
                      engine.core().ModelState()[0].tensor[0].item<double>(),
                      model->late.to(at::kFloat)[1].item<double>()});
    });
    const std::string name = std::string(DtypeName(mode.model)) + ", accumulates in " +
                             DtypeName(mode.accumulation) + ", prescale " +
                             std::to_string(mode.prescale);
    for (const std::exception_ptr& error : errors) ASSERT_EQ(TextOf(error), "") << name;
    EXPECT_EQ(seen[0], seen[1]) << name;
    EXPECT_EQ(seen[0][0], 2) << name;
    EXPECT_EQ(seen[0][1], mode.model == k16 ? 256 / 4 : 1) << name;
    // Two updates of rate 0.25 with a gradient of norm 1 in five equal elements.
    EXPECT_NEAR(seen[0][2], 1 - 2 * 0.25 / std::sqrt(5), mode.model == k32 ? 1e-6 : 4e-3) << name;
  }
}

TEST(EngineRanksTest, NamesRankOfNanLossOnAllRanks) {
  const auto errors = RunRanks(kRanks, [&](const ProcessGroup& group) {
    auto engine = Initialize(Config(2), std::make_shared<Sum>(), group);
    Train(engine, 4, [&](int64_t step, int64_t part) {
      return group.rank() == 1 && step == 3 && part == 2 ? std::nan("") : 1;
    });
  });
  for (const std::exception_ptr& error : errors) {
    EXPECT_EQ(TextOf(error),
              "step 3: the loss of rank 1 is nan in micro-batch 2, so the gradient of early is not "
              "finite; try a lower learning rate");
  }
}

}  // namespace
}  // namespace dslaunch::engine_ranks_test
