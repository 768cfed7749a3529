#include "trainer/config/optimizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/config/scheduler_config.h"

namespace dslaunch::optimizer_config_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Type = OptimizerConfig::Type;

OptimizerConfig Optimizer(const json& section) {
  return ParseOptimizer({section, "c", "optimizer"});
}

OptimizerConfig Optimizer(const std::string& type, const json& params) {
  return Optimizer(json{{"type", type}, {"params", params}});
}

SchedulerConfig Scheduler(const std::string& type, const json& params,
                          const OptimizerConfig& optimizer = {}) {
  const json section = {{"type", type}, {"params", params}};
  return ParseScheduler({section, "c", "scheduler"}, optimizer);
}

template <typename Parse>
std::string Refusal(const Parse& parse) {
  try {
    parse();
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
  return "accepted";
}

std::string OptimizerRefusal(const std::string& type, const json& params) {
  return Refusal([&] { Optimizer(type, params); });
}

std::string SchedulerRefusal(const std::string& type, const json& params,
                             const OptimizerConfig& optimizer = {}) {
  return Refusal([&] { Scheduler(type, params, optimizer); });
}

TEST(OptimizerConfigTest, ReadsAdamAsAdamWByDefault) {
  EXPECT_EQ(Optimizer("Adam", {}).type, Type::kAdamW);
  EXPECT_EQ(Optimizer("adam", {}).type, Type::kAdamW) << "DeepSpeed reads the names in any case";
  EXPECT_EQ(Optimizer("Adam", {{"adam_w_mode", false}}).type, Type::kAdam);
  EXPECT_THAT(OptimizerRefusal("AdamW", {{"adam_w_mode", false}}), HasSubstr("contradicts"));
  EXPECT_FALSE(Optimizer("Adam", {{"bias_correction", false}}).bias_correction);
}

TEST(OptimizerConfigTest, EachOptimizerHasItsDefaults) {
  const OptimizerConfig adam = Optimizer(json{{"type", "Adam"}});
  EXPECT_EQ(adam.lr, 1e-3);
  EXPECT_EQ(adam.beta2, 0.999);
  EXPECT_EQ(adam.eps, 1e-8);
  EXPECT_EQ(adam.weight_decay, 0);
  EXPECT_TRUE(adam.bias_correction);
  EXPECT_EQ(Optimizer("SGD", {}).lr, 1e-3);
  EXPECT_EQ(Optimizer("Adagrad", {}).lr, 1e-2);
  EXPECT_EQ(Optimizer("Adagrad", {}).eps, 1e-10);
  EXPECT_EQ(Optimizer("RMSprop", {}).lr, 1e-2);
  EXPECT_EQ(Optimizer("RMSprop", {}).alpha, 0.99);
  EXPECT_EQ(Optimizer("Lamb", {}).max_coeff, 10);
  EXPECT_EQ(Optimizer("Lamb", {}).min_coeff, 0.01);
  EXPECT_EQ(Optimizer("Lion", {}).beta2, 0.999);
}

TEST(OptimizerConfigTest, TorchAdamHasPyTorchsKeysAndDefaults) {
  EXPECT_EQ(Optimizer("AdamW", {{"torch_adam", true}}).weight_decay, 0.01);
  EXPECT_EQ(Optimizer("Adam", {{"torch_adam", true}, {"adam_w_mode", false}}).weight_decay, 0);
  EXPECT_TRUE(Optimizer("Adam", {{"torch_adam", true}, {"amsgrad", true}}).amsgrad);
  EXPECT_THAT(OptimizerRefusal("Adam", {{"amsgrad", true}}), HasSubstr("torch_adam"));
  EXPECT_THAT(OptimizerRefusal("Adam", {{"torch_adam", true}, {"bias_correction", false}}),
              HasSubstr("bias_correction is not a known key"));
}

TEST(OptimizerConfigTest, RefusesUnsupportedOptimizersByName) {
  EXPECT_THAT(OptimizerRefusal("MuSGD", {}), HasSubstr("mup"));
  EXPECT_THAT(OptimizerRefusal("Muon", {}), HasSubstr("use AdamW"));
  EXPECT_EQ(OptimizerRefusal("Adan", {}),
            "c: optimizer.type is \"Adan\"; did you mean \"Adam\"? Known: Adagrad, Adam, AdamW, "
            "Lamb, Lion, OneBitAdam, OneBitLamb, RMSprop, SGD, ZeroOneAdam");
  EXPECT_THAT(Refusal([] { Optimizer(json::object()); }), HasSubstr("type is missing"));
}

TEST(OptimizerConfigTest, RefusesWrongParameters) {
  EXPECT_EQ(OptimizerRefusal("Lamb", {{"max_coef", 5}}),
            "c: optimizer.params.max_coef is not a known key; did you mean \"max_coeff\"?");
  EXPECT_THAT(OptimizerRefusal("Adam", {{"max_grad_norm", 1}}), HasSubstr("gradient_clipping"));
  EXPECT_THAT(OptimizerRefusal("Adam", {{"betas", {0.9, 1.0}}}), HasSubstr("betas"));
  EXPECT_THAT(OptimizerRefusal("Lamb", {{"min_coeff", 11}}), HasSubstr("above max_coeff"));
  EXPECT_THAT(OptimizerRefusal("SGD", {{"nesterov", true}}), HasSubstr("nesterov"));
  EXPECT_THAT(OptimizerRefusal("SGD", {{"maximize", true}}), HasSubstr("negate the loss"));
  EXPECT_THAT(OptimizerRefusal("Adagrad", {{"fused", true}}), HasSubstr("always uses the fused"));
  EXPECT_THAT(OptimizerRefusal("Lion", {{"eps", 1e-8}}), HasSubstr("eps is not a known key"));
  EXPECT_THAT(OptimizerRefusal("Lion", {{"set_grad_none", false}}), HasSubstr("set_grad_none"));
  EXPECT_EQ(OptimizerRefusal("SGD", {{"fused", false}}), "accepted");
}

TEST(OptimizerConfigTest, ReadsParameterGroups) {
  const json section = {
      {"type", "AdamW"},
      {"param_groups",
       {{{"max_dims", 1}, {"weight_decay", 0}}, {{"names", {"head.*"}}, {"lr", 0.5}}}}};
  const OptimizerConfig optimizer = Optimizer(section);
  ASSERT_EQ(optimizer.groups.size(), 2);
  EXPECT_EQ(optimizer.groups[0].max_dims, 1);
  EXPECT_EQ(optimizer.groups[0].weight_decay, 0);
  EXPECT_FALSE(optimizer.groups[0].lr);
  EXPECT_THAT(optimizer.groups[1].names, testing::ElementsAre("head.*"));
  EXPECT_EQ(optimizer.groups[1].lr, 0.5);

  const auto refusal = [&](const json& groups) {
    json changed = section;
    changed["param_groups"] = groups;
    return Refusal([&] { Optimizer(changed); });
  };
  EXPECT_EQ(refusal({{{"max_dim", 1}, {"weight_decay", 0}}}),
            "c: optimizer.param_groups[0].max_dim is not a known key; did you mean \"max_dims\"?");
  EXPECT_THAT(refusal({{{"weight_decay", 0}}}),
              HasSubstr("param_groups[0] matches every parameter"));
  EXPECT_THAT(refusal({{{"max_dims", 1}}}), HasSubstr("param_groups[0] changes nothing"));
  EXPECT_THAT(refusal({{{"names", "head.*"}, {"lr", 1}}}), HasSubstr("must be a list of texts"));
  EXPECT_THAT(refusal({{"max_dims", 1}}), HasSubstr("must be a list of objects"));
}

TEST(SchedulerConfigTest, EachScheduleHasItsDefaults) {
  EXPECT_EQ(Scheduler("WarmupLR", {}).name, "WarmupLR");
  const auto warmup = std::get<WarmupLr>(Scheduler("WarmupLR", {}).schedule);
  EXPECT_FALSE(warmup.max_lr) << "the optimizer's";
  EXPECT_EQ(warmup.warmup.num_steps, 1000);
  EXPECT_FALSE(warmup.warmup.linear);
  const json total = {{"total_num_steps", 10}};
  EXPECT_EQ(std::get<WarmupDecayLr>(Scheduler("WarmupDecayLR", total).schedule).max_lr, 0.001);
  EXPECT_EQ(std::get<WarmupCosineLr>(Scheduler("WarmupCosineLR", total).schedule).cos_min_ratio,
            0.0001);
  const auto cycle = std::get<OneCycle>(
      Scheduler("OneCycle",
                {{"cycle_min_lr", 0.1}, {"cycle_max_lr", 1}, {"cycle_first_step_size", 50}})
          .schedule);
  EXPECT_EQ(cycle.second_step_size, 50) << "the first half's";
  EXPECT_TRUE(cycle.cycle_momentum);
  EXPECT_EQ(cycle.max_momentum, 0.9);
  const auto range = std::get<LrRangeTest>(Scheduler("LRRangeTest", {}).schedule);
  EXPECT_EQ(range.min_lr, 1e-3);
  EXPECT_EQ(range.step_size, 2000);
  EXPECT_EQ(std::get<StepLr>(Scheduler("StepLR", {{"step_size", 3}}).schedule).gamma, 0.1);
}

TEST(SchedulerConfigTest, OneCycleKeepsMomentumWithoutBetas) {
  const json params = {{"cycle_min_lr", 0.1}, {"cycle_max_lr", 1}};
  const OptimizerConfig sgd = Optimizer("SGD", {{"momentum", 0.9}});
  EXPECT_FALSE(std::get<OneCycle>(Scheduler("OneCycle", params, sgd).schedule).cycle_momentum);
  json asked = params;
  asked["cycle_momentum"] = true;
  EXPECT_THAT(SchedulerRefusal("OneCycle", asked, sgd), HasSubstr("SGD has no betas"));
}

TEST(SchedulerConfigTest, WarmupRemarkReportsUnfinishedWarmup) {
  const auto remark = [](const LrSchedule& schedule, std::optional<int64_t> steps) {
    return WarmupRemark({"x", schedule}, 0.5, steps);
  };
  const Warmup warmup{.num_steps = 8, .linear = true};
  EXPECT_THAT(remark(WarmupLr{.warmup = warmup}, 8),
              AllOf(HasSubstr("the warm-up of 8 steps"), HasSubstr("not over after the run's 8"),
                    HasSubstr("learning rate of the last step is 0.375")));
  EXPECT_EQ(remark(WarmupLr{.warmup = warmup}, 9), "");
  EXPECT_EQ(remark(WarmupLr{.warmup = warmup}, std::nullopt), "");
  const WarmupDecayLr decay{.warmup = warmup, .total_num_steps = 7};
  EXPECT_THAT(remark(decay, std::nullopt), HasSubstr("longer than the schedule of 7"));
  EXPECT_THAT(remark(decay, 20), HasSubstr("longer than the schedule of 7"));
  EXPECT_THAT(remark(decay, 7), HasSubstr("not over after the run's 7"));
  // As the remark describes, the rate rises until update 8 and then drops at once, as in DeepSpeed.
  EXPECT_DOUBLE_EQ(ScheduledLr(decay, 0.5, 8), 0.001 * 7 / 8);
  EXPECT_DOUBLE_EQ(ScheduledLr(decay, 0.5, 9), 0);
  EXPECT_EQ(remark(WarmupCosineLr{.warmup = warmup, .total_num_steps = 8}, 20), "");
  EXPECT_EQ(remark(ConstantLr{}, 1), "");
}

TEST(SchedulerConfigTest, RefusesWrongParameters) {
  EXPECT_THAT(SchedulerRefusal("CosineAnnealing", {}),
              HasSubstr("did you mean \"CosineAnnealingLR\"?"));
  EXPECT_EQ(SchedulerRefusal("WarmupLR", {{"warmup_num_step", 5}}),
            "c: scheduler.params.warmup_num_step is not a known key; did you mean "
            "\"warmup_num_steps\"?");
  EXPECT_THAT(SchedulerRefusal("WarmupLR", {{"warmup_type", "cosine"}}), HasSubstr("linear, log"));
  EXPECT_THAT(SchedulerRefusal("WarmupLR", {{"warmup_num_steps", -1}}), HasSubstr("at least 0"));
  EXPECT_THAT(SchedulerRefusal("WarmupLR", {{"total_num_steps", 5}}), HasSubstr("not a known key"));
  EXPECT_EQ(SchedulerRefusal("WarmupDecayLR", {}),
            "c: scheduler.params.total_num_steps is missing; this schedule needs it");
  EXPECT_THAT(
      SchedulerRefusal("OneCycle",
                       {{"cycle_min_lr", 1}, {"cycle_max_lr", 1}, {"cycle_first_step_size", 0}}),
      HasSubstr("above 0"));
  EXPECT_THAT(SchedulerRefusal("WarmupLR", {{"last_batch_iteration", 7}}), HasSubstr("checkpoint"));
  EXPECT_EQ(SchedulerRefusal("WarmupLR", {{"last_batch_iteration", -1}}), "accepted");
}

TEST(SchedulerConfigTest, RefusesGroupRateThatScheduleOverrides) {
  const OptimizerConfig optimizer =
      Optimizer(json{{"type", "Adam"}, {"param_groups", {{{"max_dims", 1}, {"lr", 0.5}}}}});
  EXPECT_EQ(SchedulerRefusal("WarmupLR", {}, optimizer), "accepted");
  EXPECT_THAT(SchedulerRefusal("WarmupLR", {{"warmup_max_lr", 1}}, optimizer),
              HasSubstr("would be lost"));
  EXPECT_THAT(SchedulerRefusal("LRRangeTest", {}, optimizer), HasSubstr("would be lost"));
}

}  // namespace
}  // namespace dslaunch::optimizer_config_test
