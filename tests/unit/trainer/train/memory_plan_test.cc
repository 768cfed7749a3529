#include "trainer/train/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/format.h"

namespace dslaunch::memory_plan_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

EngineConfig Config(OptimizerConfig::Type type, Dtype model = Dtype::kFloat32) {
  EngineConfig config;
  config.optimizer.emplace().type = type;
  config.precision.model = model;
  config.batch = {8, 4, 1};
  config.precision.master_weights = model != Dtype::kFloat32;
  return config;
}

TEST(MemoryPlanTest, CountsStatesOfFp32TrainingWithAdam) {
  ModelSizes model;
  model.trained = 1000;
  model.frozen = 10;
  model.buffers = 5;
  model.other_buffer_bytes = 8;
  const MemoryPlan plan = PlanMemory(model, Config(OptimizerConfig::Type::kAdamW));
  EXPECT_EQ(plan.parameters, 4040);
  EXPECT_EQ(plan.gradients, 4000);
  EXPECT_EQ(plan.buckets, 0) << "gradients are parts of the buckets";
  EXPECT_EQ(plan.optimizer, 8000);
  EXPECT_EQ(plan.master_weights, 0);
  EXPECT_EQ(plan.buffers, 28);
  EXPECT_EQ(plan.total(), 4040 + 4000 + 8000 + 28);
}

TEST(MemoryPlanTest, CountsBucketsBesideAccumulatedGradients) {
  ModelSizes model;
  model.trained = 1000;
  EngineConfig config = Config(OptimizerConfig::Type::kSgd);
  config.batch = {8, 1, 4};
  EXPECT_EQ(PlanMemory(model, config).buckets, 4000);
}

TEST(MemoryPlanTest, CountsMasterWeightsOf16BitTraining) {
  ModelSizes model;
  model.trained = 1000;
  const MemoryPlan plan = PlanMemory(model, Config(OptimizerConfig::Type::kAdam, Dtype::kBFloat16));
  EXPECT_EQ(plan.parameters, 2000);
  EXPECT_EQ(plan.gradients, 4000);  // gradients accumulate in fp32
  EXPECT_EQ(plan.buckets, 2000);    // gradients are sent in bf16
  EXPECT_EQ(plan.master_weights, 4000);
  EXPECT_EQ(plan.optimizer, 8000);
  EngineConfig alone = Config(OptimizerConfig::Type::kAdam, Dtype::kBFloat16);
  alone.batch = {4, 4, 1};
  EXPECT_EQ(PlanMemory(model, alone).buckets, 0);
}

TEST(MemoryPlanTest, CountsFp32BatchNormsOf16BitModel) {
  ModelSizes model;
  model.trained = 1000;
  model.batch_norm_trained = 100;
  model.buffers = 50;
  model.batch_norm_buffers = 50;
  EngineConfig config = Config(OptimizerConfig::Type::kSgd, Dtype::kFloat16);
  config.precision.batch_norm_float32 = true;
  const MemoryPlan plan = PlanMemory(model, config);
  EXPECT_EQ(plan.parameters, 900 * 2 + 100 * 4);
  EXPECT_EQ(plan.buckets, 900 * 2) << "batch norms travel as their gradients accumulate";
  EXPECT_EQ(plan.buffers, 50 * 4);
}

// With AdamW and fp32 copies, a model of P parameters needs 16 P bytes; each higher stage divides
// more of them by the number of ranks.
TEST(MemoryPlanTest, DividesMoreAtHigherZeroStages) {
  ModelSizes model;
  model.trained = 64000;
  for (int i = 0; i < 10; ++i) {
    model.shardable.push_back({.name = "h." + std::to_string(i) + ".weight", .elements = 6400});
  }
  EngineConfig config = Config(OptimizerConfig::Type::kAdamW, Dtype::kBFloat16);
  config.precision.grad_accumulation = Dtype::kBFloat16;
  config.batch = {32, 8, 1};  // 32 / 8 = 4 ranks
  config.zero.param_persistence_threshold = 0;
  config.zero.reduce_bucket_size = 6400;
  const int64_t p = model.trained;
  for (int stage = 1; stage <= 3; ++stage) {
    config.zero.stage = stage;
    const MemoryPlan plan = PlanMemory(model, config);
    EXPECT_EQ(plan.parameters, stage < 3 ? 2 * p : 2 * p / 4);
    EXPECT_EQ(plan.gradients, stage < 2 ? 2 * p : 2 * p / 4);
    EXPECT_EQ(plan.optimizer + plan.master_weights, 12 * p / 4);
    // Buckets hold the message and the received parts of three ranks, for two units, and the
    // messages of the next two units.
    const int64_t received = 3 * 1600 * 2;
    const int64_t message = stage > 1 ? 6400 * 2 : 0;
    EXPECT_EQ(plan.buckets, 2 * (received + message) + 2 * message);
  }
  config.communication.overlap = false;
  EXPECT_EQ(PlanMemory(model, config).buckets, 2 * 6400 * 2 + 3 * 1600 * 2);
  config.batch = {32, 4, 2};
  EXPECT_EQ(PlanMemory(model, config).buckets, 2 * 6400 * 2 + 3 * 1600 * 2 + 1600 * 2)
      << "the second micro-batch's sum is not yet the gradient";
  config.batch = {32, 8, 1};
  config.zero.param_persistence_threshold = 100'000;
  EXPECT_EQ(PlanMemory(model, config).parameters, 2 * p) << "all of them stay whole";
}

// The plan is 2 P + 14 P / N bytes and so on, plus the gathered parameters within the limits.
TEST(MemoryPlanTest, LimitsGatheredParametersAtStage3) {
  ModelSizes model;
  model.trained = 64000;
  for (int i = 0; i < 10; ++i) {
    model.shardable.push_back({.name = "h" + std::to_string(i) + ".weight", .elements = 6400});
  }
  EngineConfig config = Config(OptimizerConfig::Type::kAdamW, Dtype::kBFloat16);
  config.batch = {32, 8, 1};  // 32 / 8 = 4 ranks
  config.zero.stage = 3;
  config.zero.param_persistence_threshold = 0;
  EXPECT_EQ(PlanMemory(model, config).gathered, 2 * 64000) << "all of them stay until the end";
  config.zero.max_live_parameters = 20000;
  EXPECT_EQ(PlanMemory(model, config).gathered, 2 * 20000);
  config.zero.max_reuse_distance = config.zero.prefetch_bucket_size = 0;
  EXPECT_EQ(PlanMemory(model, config).gathered, 2 * 6400) << "what one operation needs";
  config.zero.prefetch_bucket_size = 3000;
  EXPECT_EQ(PlanMemory(model, config).gathered, 2 * (6400 + 2 * 3000));
}

TEST(MemoryPlanTest, ExcludesOffloadedStateFromDeviceMemory) {
  ModelSizes model;
  model.trained = 1 << 20;
  model.shardable = {{.name = "w", .elements = model.trained, .dtype = 0, .trained = true}};
  EngineConfig config = Config(OptimizerConfig::Type::kAdamW, Dtype::kBFloat16);
  config.zero.stage = 3;
  config.zero.param_persistence_threshold = 0;
  const MemoryPlan all = PlanMemory(model, config);
  const int64_t share = model.trained / 2;  // share of one of two ranks
  config.zero.offload_optimizer.device = OffloadDevice::kCpu;
  EXPECT_EQ(PlanMemory(model, config).total(), all.total());
  EXPECT_EQ(PlanMemory(model, config).on_device(), all.total() - 12 * share);
  config.zero.offload_optimizer.device = OffloadDevice::kNvme;
  config.zero.offload_param.device = OffloadDevice::kNvme;
  const MemoryPlan plan = PlanMemory(model, config);
  EXPECT_EQ(plan.in_files, 14 * share);
  EXPECT_EQ(plan.total(), all.total() - 14 * share);
  EXPECT_THAT(PlanText(plan), HasSubstr("of it in files      7.0 MiB"));
}

TEST(MemoryPlanTest, CountsLargerOfPassesAndUpdate) {
  ModelSizes model;
  model.trained = 1000;
  EngineConfig config = Config(OptimizerConfig::Type::kAdam, Dtype::kBFloat16);
  EXPECT_EQ(PlanMemory(model, config).update, 0) << "gradients are fp32 already";
  config.precision.grad_accumulation = Dtype::kBFloat16;
  MemoryPlan plan = PlanMemory(model, config);
  EXPECT_EQ(plan.update, 4000);
  EXPECT_EQ(plan.total(), 16000 + 4000);
  plan.passes = 10000;
  plan.passes_with_buckets = 9500;
  EXPECT_EQ(plan.total(), 16000 + 10000) << "nothing travels before there are gradients";
  plan.passes_with_buckets = 11000;
  EXPECT_EQ(plan.total(), 16000 + 11000);
  plan.passes = plan.passes_with_buckets = 0;
  plan.buckets = 5000;
  EXPECT_EQ(plan.total(), 16000 + 5000) << "passes are not known";
}

TEST(MemoryPlanTest, PassesWithBucketsDependOnGradientOrder) {
  ModelSizes model;
  for (int i = 0; i < 10; ++i) {
    model.shardable.push_back({.name = "h" + std::to_string(i) + ".weight", .elements = 6400});
  }
  model.trained = 64000;
  EngineConfig config = Config(OptimizerConfig::Type::kSgd);
  config.batch = {32, 8, 1};  // 32 / 8 = 4 ranks
  config.zero.stage = 2;
  config.zero.reduce_bucket_size = 6400;
  const int64_t message = 6400 * 4, received = 3 * 1600 * 4;
  PassMemory passes = {.peak = 90'000, .peak_with_gradients = 60'000};
  EXPECT_EQ(PlanMemory(model, config, passes).passes_with_buckets,
            4 * message + 2 * received + 60'000);
  for (size_t i = 10; i-- > 0;) passes.arrivals.push_back({i, 1000, 500, 500});
  EXPECT_EQ(PlanMemory(model, config, passes).passes_with_buckets,
            3 * message + 2 * received + 500);
  EXPECT_EQ(PlanMemory(model, config, passes).buckets, 3 * message + 2 * received);
  passes.arrivals[0].peak = 90'000;
  passes.arrivals[9].peak = 80'000;
  EXPECT_EQ(PlanMemory(model, config, passes).passes_with_buckets,
            2 * (message + received) + 80'000);
}

TEST(MemoryPlanTest, ReportsWhetherPlanFitsMachine) {
  MemoryPlan plan;
  plan.parameters = int64_t{3} << 30;
  EXPECT_EQ(
      PlaceText({plan}, {.ranks = 1024, .ranks_per_node = 8, .node_bytes = int64_t{1} << 40}),
      "1024 ranks, 8 on a node: 24.0 GiB together; this machine has 1.0 TiB, which is enough");
  EXPECT_EQ(
      PlaceText({plan}, {.ranks = 2, .ranks_per_node = 8, .device_bytes = int64_t{1} << 30}),
      "2 ranks, 2 on a node: 6.0 GiB together; a GPU of this machine has 1.0 GiB, which is too "
      "little");
  const PlanPlace cpus = {.ranks = 1024, .ranks_per_node = 8, .node_bytes = int64_t{1} << 40};
  EXPECT_THAT(PlanJson(plan, cpus, 1),
              AllOf(HasSubstr(R"("ranks":1024,"stage":1,"parameters":3221225472)"),
                    HasSubstr(R"("on_gpu":false,"needs":3221225472,"has":137438953472)")));
  plan.in_main_memory = int64_t{1} << 30;
  EXPECT_THAT(PlanJson(plan, {.ranks = 2, .device_bytes = int64_t{1} << 30}, 0),
              HasSubstr(R"("on_gpu":true,"needs":2147483648,"has":1073741824)"));
}

TEST(MemoryPlanTest, CountsCopiesInMainMemory) {
  MemoryPlan plan;
  plan.parameters = int64_t{1} << 30;
  plan.copies = int64_t{3} << 30;
  EXPECT_EQ(PlaceText({plan}, {.ranks = 4, .ranks_per_node = 4, .node_bytes = int64_t{8} << 30}),
            "4 ranks, 4 on a node: 16.0 GiB together; this machine has 8.0 GiB, which is too "
            "little");
  EXPECT_THAT(PlaceText({plan}, {.ranks = 4,
                                 .ranks_per_node = 4,
                                 .device_bytes = int64_t{2} << 30,
                                 .node_bytes = int64_t{8} << 30}),
              HasSubstr("copies in memory take 12.0 GiB of a node's main memory; this machine has "
                        "8.0 GiB, which is too little"));
  EXPECT_THAT(PlanText(plan), HasSubstr("copies              3.0 GiB"));
  EXPECT_THAT(PlanJson(plan, {}, 0), HasSubstr(R"("needs":4294967296)"));
}

TEST(MemoryPlanTest, DividesCopiesAsCheckpoints) {
  ModelSizes model;
  model.trained = int64_t{1} << 20;
  model.frozen = int64_t{1} << 20;
  model.buffers = 100;
  EngineConfig config;
  config.optimizer.emplace().type = OptimizerConfig::Type::kAdamW;
  config.batch = {.train_batch_size = 4, .micro_batch_size = 1, .accumulation_steps = 1};
  const int64_t all = 4 * (3 * model.trained + model.frozen);
  EXPECT_EQ(PlanCopies(model, config, /*adapters_only=*/false, /*on_gpu=*/false),
            2 * (all / 4 + 400));
  EXPECT_EQ(PlanCopies(model, config, /*adapters_only=*/true, /*on_gpu=*/true),
            3 * (3 * model.trained + 400));
  // If the whole model is smaller than a share, rank 0 copies all of it.
  model = ModelSizes();
  model.trained = 1000;
  EXPECT_EQ(PlanCopies(model, config, /*adapters_only=*/false, /*on_gpu=*/false), 2 * 12'000);
  config.zero.stage = 1;
  EXPECT_EQ(PlanCopies(model, config, /*adapters_only=*/false, /*on_gpu=*/false), 2 * 3'000);
}

TEST(MemoryPlanTest, CountsStatesOfEachOptimizer) {
  using Type = OptimizerConfig::Type;
  ModelSizes model;
  model.trained = 1;
  const auto states = [&](Type type, auto change) {
    EngineConfig config = Config(type);
    change(*config.optimizer);
    return PlanMemory(model, config).optimizer / 4;
  };
  const auto as_it_is = [](OptimizerConfig&) {};
  EXPECT_EQ(states(Type::kAdam, as_it_is), 2);
  EXPECT_EQ(states(Type::kAdamW, [](auto& o) { o.amsgrad = true; }), 3);
  EXPECT_EQ(states(Type::kLamb, as_it_is), 2);
  EXPECT_EQ(states(Type::kLion, as_it_is), 1);
  EXPECT_EQ(states(Type::kAdagrad, as_it_is), 1);
  EXPECT_EQ(states(Type::kSgd, as_it_is), 0);
  EXPECT_EQ(states(Type::kSgd, [](auto& o) { o.momentum = 0.9; }), 1);
  EXPECT_EQ(states(Type::kRmsprop, as_it_is), 1);
  EXPECT_EQ(states(Type::kRmsprop,
                   [](auto& o) {
                     o.momentum = 0.9;
                     o.centered = true;
                   }),
            3);
}

TEST(MemoryPlanTest, TextContainsPlannedAndMeasuredSizes) {
  EXPECT_EQ(BytesText(512), "0.5 KiB");
  EXPECT_EQ(BytesText(int64_t{1536} << 10), "1.5 MiB");
  EXPECT_EQ(BytesText(int64_t{3} << 30), "3.0 GiB");
  MemoryPlan plan;
  plan.parameters = 1 << 20;
  EXPECT_THAT(PlanText(plan), HasSubstr("parameters"));
  EXPECT_THAT(PlanText(plan), HasSubstr("1.0 MiB"));
  EXPECT_THAT(ComparisonText(plan, {.parameters = 2 << 20}), HasSubstr("2.0 MiB"));
}

}  // namespace
}  // namespace dslaunch::memory_plan_test
