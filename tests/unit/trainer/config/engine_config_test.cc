#include "trainer/config/engine_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "trainer/base/train_error.h"

namespace dslaunch::engine_config_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

EngineConfig Parse(const std::string& text, int64_t ranks = 1) {
  return ParseEngineConfig(text, "ds.json", ranks);
}

std::string Refusal(const std::string& text, int64_t ranks = 1) {
  try {
    Parse(text, ranks);
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
  return "accepted";
}

// Returns a configuration with these keys (JSON without the braces) and a batch size.
std::string With(const std::string& keys) { return R"({"train_batch_size": 8, )" + keys + "}"; }

// Reads the keys that tests/trainer/deepspeed_keys.py has listed from DeepSpeed's source.
TEST(EngineConfigTest, KnowsEveryKeyOfDeepSpeed) {
  std::ifstream file(DSLAUNCH_DEEPSPEED_KEYS);
  const json deepspeed = json::parse(file);
  size_t keys = 0;
  for (const auto& [section, defaults] : deepspeed["keys"].items()) {
    std::string pointer = section.empty() ? "" : "/" + section;
    std::ranges::replace(pointer, '.', '/');
    for (const auto& [key, value] : defaults.items()) {
      json config = {{"train_batch_size", 8}};
      if (key != "train_batch_size") config[json::json_pointer(pointer + "/" + key)] = value;
      EXPECT_EQ(Refusal(config.dump()), "accepted") << section << " " << key;
      ++keys;
      // Another value is applied or refused with a reason, but is never unknown.
      config[json::json_pointer(pointer + "/" + key)] = "a word";
      EXPECT_THAT(Refusal(config.dump()), Not(HasSubstr("known key"))) << section << " " << key;
    }
  }
  EXPECT_GT(keys, 200u);
}

// Reads DeepSpeed's tutorials without changes.
TEST(EngineConfigTest, ReadsTutorialConfigurations) {
  for (const int64_t ranks : {1, 2, 4}) {
    const EngineConfig adam = Parse(
        R"({"train_batch_size":64,"optimizer":{"type":"Adam","params":{"lr":0.001}}})", ranks);
    EXPECT_EQ(adam.batch.micro_batch_size, 64 / ranks);
    EXPECT_EQ(adam.batch.accumulation_steps, 1);
    EXPECT_EQ(adam.optimizer->lr, 0.001);
    EXPECT_EQ(adam.precision.model, Dtype::kFloat32);
    EXPECT_FALSE(adam.precision.loss_scaler || adam.precision.master_weights);

    const EngineConfig fp16 = Parse(
        R"({"train_batch_size":64,"gradient_accumulation_steps":4,"fp16":{"enabled":true,
            "loss_scale":0,"loss_scale_window":1000,"hysteresis":2,"min_loss_scale":1}})",
        ranks);
    EXPECT_EQ(fp16.batch.micro_batch_size, 16 / ranks);
    EXPECT_EQ(fp16.precision.model, Dtype::kFloat16);
    EXPECT_TRUE(fp16.precision.master_weights);
    EXPECT_TRUE(fp16.precision.skip_overflow);
    EXPECT_TRUE(fp16.precision.loss_scaler->dynamic);
    EXPECT_EQ(fp16.precision.grad_accumulation, Dtype::kFloat32);
    EXPECT_FALSE(fp16.optimizer);

    const EngineConfig bf16 =
        Parse(R"({"train_batch_size":64,"gradient_accumulation_steps":4,"bf16":{"enabled":true}})",
              ranks);
    EXPECT_EQ(bf16.precision.model, Dtype::kBFloat16);
    EXPECT_TRUE(bf16.precision.master_weights);
    EXPECT_TRUE(bf16.precision.skip_overflow) << "check_grad_overflow is true in 0.19.8";
    EXPECT_FALSE(bf16.precision.loss_scaler);
    EXPECT_EQ(bf16.precision.grad_accumulation, Dtype::kFloat32);
  }
  EXPECT_EQ(Parse(R"({"train_batch_size":64,"optimizer":{"type":"Adam","params":{"lr":0.001}},
                      "zero_optimization":{"stage":2}})",
                  2)
                .zero.stage,
            2);
}

TEST(EngineConfigTest, HasDefaultsOfDeepSpeed0_19_6) {
  const EngineConfig config = Parse(R"({"train_batch_size": 8})");
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(config.steps_per_print, 0);
  EXPECT_FALSE(config.dataloader_drop_last || config.dump_state || config.memory_breakdown);
  EXPECT_EQ(config.log_level, EngineLogLevel::kInfo);
  EXPECT_FALSE(config.communication.dtype || config.communication.prescale);
  EXPECT_FALSE(config.communication.sum);
  EXPECT_EQ(config.communication.predivide_factor, 1.0);
  EXPECT_TRUE(config.communication.overlap);
  EXPECT_EQ(config.zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.zero.sub_group_size, 1'000'000'000);
  EXPECT_EQ(config.zero.prefetch_bucket_size, 50'000'000);
  EXPECT_EQ(config.zero.param_persistence_threshold, 100'000);
  const LossScalerConfig scaler =
      *Parse(With(R"("fp16": {"enabled": true})")).precision.loss_scaler;
  EXPECT_EQ(scaler.initial_scale_power, 16);
  EXPECT_EQ(scaler.loss_scale_window, 1000);
  EXPECT_EQ(scaler.hysteresis, 2);
  EXPECT_FALSE(scaler.consecutive_hysteresis);
  EXPECT_EQ(scaler.min_loss_scale, 1);
}

TEST(EngineConfigTest, ReadsCommunicationAndReportKeys) {
  const EngineConfig config = Parse(With(
      R"("communication_data_type": "FP32", "gradient_predivide_factor": 2.5, "steps_per_print": 10,
         "gradient_clipping": 0, "dump_state": true, "memory_breakdown": true, "log_level": "WARNING",
         "zero_allow_untested_optimizer": true, "dataloader_drop_last": true, // a comment
         "zero_optimization": {"stage": 0, "overlap_comm": false, "reduce_bucket_size": 5e7})"));
  EXPECT_EQ(config.communication.dtype, Dtype::kFloat32);
  EXPECT_EQ(config.communication.predivide_factor, 2.5);
  EXPECT_FALSE(config.communication.overlap);
  EXPECT_EQ(config.steps_per_print, 10);
  EXPECT_EQ(config.gradient_clipping, 0);
  EXPECT_TRUE(config.dump_state && config.memory_breakdown && config.dataloader_drop_last);
  EXPECT_EQ(config.log_level, EngineLogLevel::kWarning);
  EXPECT_EQ(config.zero.reduce_bucket_size, 50'000'000);
  EXPECT_TRUE(Parse(With(R"("gradient_allreduce_op": "SUM")")).communication.sum);
  EXPECT_TRUE(Parse(With(R"("prescale_gradients": true)")).communication.prescale);
}

TEST(EngineConfigTest, ReadsAndChecksParameterServers) {
  using Mode = ParallelConfig::Mode;
  const auto parallel = [](const std::string& section) {
    return With(R"("parallel": )" + section);
  };
  EXPECT_EQ(Parse(R"({"train_batch_size": 8})", 4).parallel.mode, Mode::kAllReduce);
  const ParallelConfig two =
      Parse(parallel(R"({"mode": "parameter_server", "servers": 2})"), 4).parallel;
  EXPECT_EQ(two.mode, Mode::kParameterServer);
  EXPECT_EQ(two.servers, 2);
  EXPECT_EQ(Parse(parallel(R"({"mode": "parameter_server"})"), 4).parallel.servers, 1);
  EXPECT_THAT(Refusal(parallel(R"({"mode": "parameter_server", "servers": 3})"), 2),
              HasSubstr("parallel.servers is 3, but there are 2 ranks"));
  EXPECT_THAT(Refusal(parallel(R"({"servers": 3})"), 4),
              HasSubstr("parallel.servers is of the mode parameter_server"));
  EXPECT_THAT(Refusal(parallel(R"({"mode": "ring"})"), 4), HasSubstr("parallel.mode"));
  EXPECT_THAT(Refusal(With(R"("zero_optimization": {"stage": 2},
                              "parallel": {"mode": "parameter_server"})"),
                      4),
              HasSubstr("cannot be combined with zero_optimization.stage 2"));
  EXPECT_THAT(Refusal(With(R"("cuda_graph": true, "parallel": {"mode": "parameter_server"})"), 4),
              HasSubstr("parameter_server, whose messages are not recorded"));
  EXPECT_EQ(two.staleness, std::nullopt);
  EXPECT_EQ(
      Parse(parallel(R"({"mode": "parameter_server", "staleness": 3})"), 4).parallel.staleness, 3);
  EXPECT_EQ(
      Parse(parallel(R"({"mode": "parameter_server", "staleness": 0})"), 4).parallel.staleness, 0);
  EXPECT_THAT(Refusal(parallel(R"({"mode": "parameter_server", "staleness": -1})"), 4),
              HasSubstr("parallel.staleness"));
  EXPECT_THAT(Refusal(parallel(R"({"staleness": 3})"), 4),
              HasSubstr("parallel.staleness is of the mode parameter_server"));
  const std::string stale = R"(, "parallel": {"mode": "parameter_server", "staleness": 1})";
  EXPECT_THAT(Refusal(With(R"("fp16": {"enabled": true})" + stale), 4),
              HasSubstr("parallel.staleness cannot be combined with fp16"));
  EXPECT_THAT(Refusal(With(R"("gradient_allreduce_op": "SUM")" + stale), 4),
              HasSubstr("parallel.staleness cannot be combined with gradient_allreduce_op sum"));
  EXPECT_THAT(Refusal(With(R"("optimizer": {"type": "Lamb"})" + stale), 4),
              HasSubstr("parallel.staleness cannot be combined with the optimizer Lamb"));
}

TEST(EngineConfigTest, ReadsAndChecksLowCommunicationModes) {
  using Mode = ParallelConfig::Mode;
  const auto parallel = [](const std::string& section) {
    return With(R"("parallel": )" + section);
  };
  const ParallelConfig diloco =
      Parse(parallel(R"({"mode": "diloco", "inner_steps": 50})"), 4).parallel;
  EXPECT_EQ(diloco.mode, Mode::kDiloco);
  EXPECT_EQ(diloco.inner_steps, 50);
  EXPECT_EQ(diloco.outer_lr, 0.7);
  EXPECT_TRUE(diloco.outer_nesterov);
  EXPECT_FALSE(Parse(parallel(R"({"mode": "diloco", "inner_steps": 1, "outer_momentum": 0})"))
                   .parallel.outer_nesterov);
  EXPECT_THAT(Refusal(parallel(R"({"mode": "local_sgd"})"), 4),
              HasSubstr("parallel.inner_steps is missing"));
  EXPECT_THAT(Refusal(parallel(R"({"mode": "local_sgd", "inner_steps": 4, "outer_lr": 1})"), 4),
              HasSubstr("parallel.outer_lr is of the mode diloco"));
  EXPECT_THAT(Refusal(With(R"("fp16": {"enabled": true}, "parallel": {"mode": "local_sgd",
                              "inner_steps": 4})"),
                      4),
              HasSubstr("parallel.mode is local_sgd, which cannot be combined with fp16"));
  EXPECT_THAT(
      Refusal(With(R"("gradient_allreduce_op": "sum", "parallel": {"mode": "powersgd"})"), 4),
      HasSubstr("which cannot be combined with gradient_allreduce_op sum"));
  EXPECT_EQ(Parse(parallel(R"({"mode": "powersgd", "matrix_approximation_rank": 4})"), 4)
                .parallel.matrix_approximation_rank,
            4);
  const auto one_bit = [](const std::string& type, const std::string& rest) {
    return With(R"("optimizer": {"type": ")" + type + R"(", "params": {}})" + rest);
  };
  EXPECT_EQ(Parse(one_bit("OneBitAdam", ""), 4).optimizer->freeze_step, 100000);
  EXPECT_THAT(Refusal(one_bit("onebitadam", R"(, "zero_optimization": {"stage": 1})"), 4),
              HasSubstr("optimizer.type is onebitadam, which cannot be combined with "
                        "zero_optimization.stage 1: as in DeepSpeed"));
  EXPECT_THAT(Refusal(one_bit("OneBitLamb", R"(, "zero_optimization": {"stage": 2})"), 4),
              HasSubstr("set stage 0, or use Lamb"));
  EXPECT_THAT(Refusal(one_bit("OneBitAdam", R"(, "parallel": {"mode": "powersgd"})"), 4),
              HasSubstr("which cannot be combined with parallel.mode powersgd"));
  EXPECT_THAT(Refusal(one_bit("OneBitLamb", R"(, "fp16": {"enabled": true, "loss_scale": 8})"), 4),
              HasSubstr("is OneBitLamb, which needs a dynamic loss scale"));
}

TEST(EngineConfigTest, ReadsStaticAndDynamicLossScales) {
  const auto scaler = [](const std::string& keys) {
    return *Parse(With("\"fp16\": {\"enabled\": true, " + keys + "}")).precision.loss_scaler;
  };
  EXPECT_FALSE(scaler(R"("loss_scale": 128)").dynamic);
  EXPECT_EQ(scaler(R"("loss_scale": 128)").static_scale, 128);
  EXPECT_EQ(scaler(R"("loss_scale": 128, "loss_scale_window": 0)").static_scale, 128)
      << "dynamic settings mean nothing beside a static scale";
  EXPECT_EQ(scaler(R"("initial_scale_power": 4, "hysteresis": 3)").hysteresis, 3);
  EXPECT_EQ(scaler(R"("min_loss_scale": 8.0)").min_loss_scale, 8);
  EXPECT_EQ(Refusal(With(R"("fp16": {"enabled": false, "loss_scale_window": 0})")), "accepted");
}

TEST(EngineConfigTest, ReadsAutocastAndApexPresets) {
  struct Case {
    const char* keys;
    Dtype model;
    std::optional<Dtype> autocast;
    bool masters, batch_norm_float32;
    std::optional<double> static_scale;  // nullopt for no scaling, 0 for dynamic scaling
    Dtype accumulation;
  };
  constexpr Dtype k32 = Dtype::kFloat32, k16 = Dtype::kFloat16, kB16 = Dtype::kBFloat16;
  const Case cases[] = {
      {R"("torch_autocast": {"enabled": true, "dtype": "bfloat16"})",
       k32,
       kB16,
       false,
       false,
       {},
       k32},
      {R"("torch_autocast": {"enabled": true, "dtype": "torch.float16"})", k32, k16, false, false,
       0, k32},
      {R"("torch_autocast": {"enabled": false})", k32, {}, false, false, {}, k32},
      {R"("amp": {"enabled": true, "opt_level": "O0"})", k32, {}, false, false, {}, k32},
      {R"("amp": {"enabled": true})", k32, k16, false, false, 0, k32},
      {R"("amp": {"enabled": true, "opt_level": "O1", "loss_scale": 64})", k32, k16, false, false,
       64, k32},
      {R"("amp": {"enabled": true, "opt_level": "O2"})", k16, {}, true, true, 0, k32},
      {R"("amp": {"enabled": true, "opt_level": "O2", "keep_batchnorm_fp32": false})",
       k16,
       {},
       true,
       false,
       0,
       k32},
      {R"("amp": {"enabled": true, "opt_level": "O3"})", k16, {}, false, false, 1, k16},
      {R"("amp": {"enabled": true, "opt_level": "O3", "loss_scale": "dynamic"})",
       k16,
       {},
       false,
       false,
       0,
       k16},
      {R"("amp": {"enabled": false, "opt_level": "O3"})", k32, {}, false, false, {}, k32},
      {R"("fp16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"})",
       k16,
       {},
       true,
       false,
       0,
       k16},
      {R"("bfloat16": {"enabled": true, "immediate_grad_update": true},
          "data_types": {"grad_accum_dtype": "fp32", "param_dtype": "bf16"})",
       kB16,
       {},
       true,
       false,
       {},
       k32},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.keys);
    const PrecisionConfig precision = Parse(With(c.keys)).precision;
    EXPECT_EQ(precision.model, c.model);
    EXPECT_EQ(precision.autocast, c.autocast);
    EXPECT_EQ(precision.master_weights, c.masters);
    EXPECT_EQ(precision.batch_norm_float32, c.batch_norm_float32);
    EXPECT_EQ(precision.grad_accumulation, c.accumulation);
    ASSERT_EQ(precision.loss_scaler.has_value(), c.static_scale.has_value());
    if (!c.static_scale) continue;
    EXPECT_TRUE(precision.skip_overflow);
    EXPECT_EQ(precision.loss_scaler->dynamic, *c.static_scale == 0);
    if (*c.static_scale > 0) {
      EXPECT_EQ(precision.loss_scaler->static_scale, *c.static_scale);
    }
  }
  EXPECT_FALSE(Parse(With(R"("bf16": {"enabled": true, "check_grad_overflow": false})"))
                   .precision.skip_overflow);
}

TEST(EngineConfigTest, RefusalsNameKeyReasonAndRemedy) {
  const struct {
    const char* keys;
    const char* message;
  } cases[] = {
      // These keys contradict each other.
      {R"("fp16": {"enabled": true}, "bf16": {"enabled": true})",
       "bf16 is enabled, and fp16 too; enable one of them"},
      {R"("amp": {"enabled": true}, "fp16": {"enabled": true})", "amp is enabled, and fp16 too"},
      {R"("torch_autocast": {"enabled": true, "dtype": "fp16"}, "bf16": {"enabled": true})",
       "torch_autocast is enabled, and bf16 too"},
      {R"("bf16": {}, "bfloat16": {})", "bfloat16 is the older name of bf16"},
      {R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"})",
       "data_types.grad_accum_dtype is fp16, but gradients of this bf16 model add up in fp32 or "
       "bf16"},
      {R"("data_types": {"grad_accum_dtype": "bf16"})",
       "data_types.grad_accum_dtype is bf16, but gradients of this fp32 model add up in fp32"},
      {R"("data_types": {"param_dtype": "bf16"})", "data_types.param_dtype is bf16, but"},
      {R"("fp16": {"enabled": true}, "data_types": {"buffer_dtype": "fp32"})",
       "data_types.buffer_dtype is fp32, but parameters and buffers are fp16"},
      {R"("gradient_allreduce_op": "sum", "prescale_gradients": true)",
       "gradient_allreduce_op is sum, which does not divide; remove prescale_gradients"},
      {R"("gradient_allreduce_op": "sum", "gradient_predivide_factor": 2)",
       "gradient_allreduce_op is sum"},
      {R"("prescale_gradients": true, "gradient_predivide_factor": 2)",
       "gradient_predivide_factor has no effect with prescale_gradients"},
      {R"("fp16": {"enabled": true, "loss_scale": 8}, "optimizer": {"type": "Lamb"})",
       "optimizer is Lamb, which needs a dynamic loss scale"},
      {R"("amp": {"enabled": true, "keep_batchnorm_fp32": true})",
       "amp.keep_batchnorm_fp32 has no meaning with opt_level O1"},
      // These values are out of range or of the wrong type.
      {R"("fp16": {"enabled": true, "loss_scale": true})", "fp16.loss_scale is true, not a number"},
      {R"("fp16": {"loss_scale": -1})", "fp16.loss_scale is -1; it must be at least 0"},
      {R"("fp16": {"loss_scale": "0"})", "fp16.loss_scale is \"0\", not a number"},
      {R"("fp16": {"loss_scale": 1e999})", "not valid JSON"},
      {R"("fp16": {"enabled": true, "loss_scale_window": 0})",
       "fp16.loss_scale_window is 0; it must be at least 1"},
      {R"("fp16": {"enabled": true, "loss_scale_window": true})",
       "fp16.loss_scale_window is true, not a whole number"},
      {R"("fp16": {"enabled": true, "min_loss_scale": 0})", "fp16.min_loss_scale is 0;"},
      {R"("fp16": {"enabled": true, "min_loss_scale": 0.5})",
       "fp16.min_loss_scale is 0.5, not a whole number"},
      {R"("fp16": {"enabled": true, "hysteresis": 0})", "fp16.hysteresis is 0;"},
      {R"("fp16": {"enabled": true, "initial_scale_power": 3, "min_loss_scale": 9})",
       "fp16.min_loss_scale is above the first scale"},
      {R"("fp16": {"fp16_master_weights_and_grads": true})", "fp16.fp16_master_weights_and_grads"},
      {R"("fp16": true)", "fp16 is true, not an object with keys"},
      {R"("amp": {"enabled": true, "opt_level": "O4"})", "amp.opt_level is \"O4\""},
      {R"("amp": {"enabled": true, "loss_scale": 0})", "amp.loss_scale is 0"},
      {R"("torch_autocast": {"enabled": true})", "torch_autocast.dtype is missing"},
      {R"("torch_autocast": {"lower_precision_safe_modules": ["torch.nn.Linear"]})",
       "torch_autocast.lower_precision_safe_modules names Python classes"},
      {R"("communication_data_type": "int8")", "communication_data_type is \"int8\""},
      {R"("gradient_allreduce_op": "max")", "gradient_allreduce_op is \"max\""},
      {R"("gradient_predivide_factor": 0)", "gradient_predivide_factor is 0"},
      {R"("gradient_clipping": -1)", "gradient_clipping is -1"},
      {R"("steps_per_print": 0)", "steps_per_print is 0"},
      {R"("cuda_graph": true, "zero_optimization": {"stage": 3})",
       "cuda_graph cannot be combined with zero_optimization.stage 3"},
      {R"("cuda_graph": true, "zero_optimization":
          {"stage": 1, "offload_optimizer": {"device": "cpu"}})",
       "cuda_graph cannot be combined with zero_optimization.offload_optimizer"},
      {R"("cuda_graph": true, "fp16": {"enabled": true})", "a loss scale"},
      {R"("cuda_graph": true, "optimizer": {"type": "SGD", "params": {"lr": 1}})",
       "cuda_graph cannot be combined with the optimizer SGD"},
      {R"("cuda_graph": true, "scheduler": {"type": "OneCycle",
          "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}})",
       "cuda_graph cannot be combined with the scheduler OneCycle"},
      {R"("cuda_graph": true, "flops_profiler": {"enabled": true, "profile_step": 12})",
       "cuda_graph replays the step 12"},
      {R"("cuda_graph": "yes")", "cuda_graph"},
      {R"("log_level": "loud")", "log_level is \"loud\""},
      {R"("steps_per_print": "auto", "optimizer": {"type": "Adam", "params": {"lr": "auto"}})",
       "or leave the key out: optimizer.params.lr, steps_per_print"},
      {R"("zero_optimization": {"reduce_bucket_size": -1})",
       "zero_optimization.reduce_bucket_size is -1"},
      {R"("zero_optimization": {"stage": 4})", "zero_optimization.stage is 4"},
      {R"("zero_optimization": 1)", "zero_optimization is 1, not an object"},
      {R"("zero_optimization": {"max_live_parameters": 1, "stage3_max_live_parameters": 1})",
       "zero_optimization.max_live_parameters is the same setting as stage3_max_live_parameters"},
      {R"("zero_optimization": {"stage": 2, "cpu_offload": true,
          "offload_optimizer": {"device": "cpu"}})",
       "zero_optimization.cpu_offload is the older name of offload_optimizer"},
      {R"("zero_optimization": {"compute_grad_norm": false})",
       "zero_optimization.compute_grad_norm is false, but"},
      {R"("zero_optimization": {"parameter_alignment": true})",
       "zero_optimization.parameter_alignment is true, but"},
      {R"("data_types": {"keep_in_fp32_modules": ["norm"]})",
       "data_types.keep_in_fp32_modules names Python modules"},
      {R"("activation_checkpointing": {"number_checkpoints": true})", "number_checkpoints"},
      {R"("zero_optimization": {"offload_optimizer": {"device": "nvme"}})",
       "zero_optimization.offload_optimizer.device is nvme, which needs nvme_path"},
      {R"("aio": {"use_gds": true})", "aio.use_gds"},
      {R"("aio": {"thread_cuont": 1})", "did you mean \"thread_count\"?"},
      {R"("zero_optimization": {"offload_optimizer": {"device": "cpu"}})",
       "zero_optimization.stage is 0, at which nothing is offloaded"},
      {R"("zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}})",
       "zero_optimization.offload_param needs stage 3"},
      {R"("zero_optimization": {"cpu_offload": true})",
       "zero_optimization.stage is 0, at which nothing is offloaded"},
      {R"("zero_optimization": {"zero_quantized_weights": true})",
       "zero_optimization.zero_quantized_weights is true, but ZeRO++"},
      // These keys have typing errors, at every depth.
      {R"("zero_optimizatoin": {"stage": 0})", "did you mean \"zero_optimization\"?"},
      {R"("zero_optimization": {"overlap_com": true})", "did you mean \"overlap_comm\"?"},
      {R"("zero_optimization": {"offload_param": {"devise": "none"}})", "did you mean \"device\"?"},
      {R"("fp16": {"enabled": false, "loss_scal": 0})", "did you mean \"loss_scale\"?"},
      {R"("bf16": {"enable": true})", "did you mean \"enabled\"?"},
      {R"("data_types": {"grad_accum_dtyp": "fp32"})", "did you mean \"grad_accum_dtype\"?"},
      {R"("activation_checkpointing": {"partitioned_activations": true})",
       "did you mean \"partition_activations\"?"},
      {R"("pipeline": {"stage": 2})", "did you mean \"stages\"?"},
      {R"("checkpoint": {"parallel_write": {"pipeline_stag": false}})",
       "did you mean \"pipeline_stage\"?"},
      {R"("tensorboard": {"enabled": false, "jobname": "x"})", "did you mean \"job_name\"?"},
      {R"("csv_monitor": {"enabeld": true})", "did you mean \"enabled\"?"},
      {R"("flops_profiler": {"profile_stp": 5})", "did you mean \"profile_step\"?"},
      {R"("comms_logger": {"verbos": true})", "did you mean \"verbose\"?"},
      {R"("train_batch_size": 8)", "the key \"train_batch_size\" is given twice"},
      // dslaunch lacks these features.
      {R"("flops_profiler": {"enabled": true, "recompute_fwd_factor": 1})",
       "flops_profiler.recompute_fwd_factor is 1, but"},
      {R"("comms_logger": {"enabled": true, "debug": true})", "comms_logger.debug is true, but"},
      {R"("comms_logger": {"enabled": true, "prof_ops": ["allreduce"]})",
       "did you mean \"all_reduce\"?"},
      {R"("wandb": {"enabled": true})", "wandb.enabled is true, but"},
      {R"("activation_checkpointing": {"cpu_checkpointing": true})",
       "activation_checkpointing.cpu_checkpointing is true, but"},
      {R"("activation_checkpointing": {"cpu_checkpointing": true})",
       "choose number_checkpoints, or in a pipeline pipeline.activation_checkpoint_interval"},
      {R"("activation_checkpointing": {"number_checkpoints": 2},
          "pipeline": {"activation_checkpoint_interval": 1})",
       "activation_checkpointing.number_checkpoints is 2, but a pipeline computes activations "
       "again by pipeline.activation_checkpoint_interval"},
      {R"("pipeline": {"stages": 3})", "pipeline.stages is 3, which does not divide"},
      {R"("pipeline": {"partition": "evenly"})", "pipeline.partition is \"evenly\"; it must be"},
      {R"("pipeline": {"partition": "type:("})", "which is not a valid regular expression"},
      {R"("pipeline": {"schedule": "1f1"})", "did you mean \"1f1b\"?"},
      {R"("pipeline": {"virtual_stages": 2})", "which only the schedule interleaved supports"},
      {R"("checkpoint": {"load_universal": true})", "checkpoint.load_universal is true, but"},
      {R"("timers": {"throughput": {"enabled": false}})",
       "timers.throughput.enabled is false, but"},
      {R"("compile": {"deepcompile": true})", "compile.deepcompile is true, but"},
      {R"("sparse_gradients": true)", "sparse_gradients is not supported"},
      {R"("sparse_attention": {"mode": "fixed"})", "sparse_attention is not supported"},
      {R"("elasticity": {"enabled": true})", "elasticity is not supported; give --nnodes MIN:MAX"},
      {R"("autotuning": {"enabled": true})", "autotuning is DeepSpeed's search"},
      {R"("nebula": {"enabled": true})", "nebula writes checkpoints to a service"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.keys);
    const std::string message = Refusal(With(c.keys));
    EXPECT_THAT(message, StartsWith("ds.json: "));
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(Refusal(With(R"("cuda_graph": true, "pipeline": {"stages": 2})"), /*ranks=*/2),
              HasSubstr("cuda_graph cannot be combined with a pipeline"));
}

TEST(EngineConfigTest, CountsReplicasOfTensorParallelRanks) {
  const EngineConfig config = ParseEngineConfig(
      R"({"train_batch_size": 12, "pipeline": {"stages": 2},
          "tensor_parallel": {"autotp_size": 2, "sequence_parallel": true, "dtype": "fp16"}})",
      "ds.json", /*ranks=*/12);
  EXPECT_EQ(config.batch.micro_batch_size, 4);
  const Mesh mesh = config.MeshOf(12);
  EXPECT_EQ(mesh.pipeline, 2);
  EXPECT_EQ(mesh.data, 3);
  EXPECT_EQ(mesh.tensor, 2);
  EXPECT_TRUE(config.tensor_parallel.sequence_parallel);
  EXPECT_THAT(SharedSettings(config), HasSubstr("autotp_size"));
  for (const char* none : {R"("tensor_parallel": {"autotp_size": 0, "preset_model": "llama"})",
                           R"("tensor_parallel": {"autotp_size": 1, "sequence_parallel": true})"}) {
    const TensorParallelConfig whole =
        ParseEngineConfig(With(none), "ds.json", /*ranks=*/1).tensor_parallel;
    EXPECT_EQ(whole.size, 1);
    EXPECT_FALSE(whole.sequence_parallel);
  }
}

TEST(EngineConfigTest, RejectsWhatTensorParallelismExcludes) {
  const auto refusal = [](const std::string& keys) {
    return Refusal(With(R"("tensor_parallel": {"autotp_size": 2}, )" + keys), /*ranks=*/4);
  };
  EXPECT_THAT(Refusal(With(R"("tensor_parallel": {"autotp_size": 2})"), /*ranks=*/3),
              HasSubstr("tensor_parallel.autotp_size is 2, which does not divide 3 ranks"));
  EXPECT_THAT(refusal(R"("pipeline": {"stages": 4})"),
              HasSubstr("autotp_size is 2 with pipeline.stages 4, which does not divide 4 ranks"));
  EXPECT_THAT(refusal(R"("pipeline": {"stages": 2, "rank_order": "data_pipe"})"),
              HasSubstr("pipeline.rank_order is data_pipe, which cannot be combined"));
  EXPECT_THAT(refusal(R"("cuda_graph": true)"),
              HasSubstr("cannot be combined with tensor_parallel"));
  EXPECT_THAT(refusal(R"("parallel": {"mode": "local_sgd", "inner_steps": 2})"),
              HasSubstr("cannot be combined with tensor_parallel"));
  EXPECT_THAT(refusal(R"("optimizer": {"type": "OneBitAdam", "params": {"lr": 1}})"),
              HasSubstr("cannot be combined with tensor_parallel"));
  EXPECT_THAT(
      Refusal(With(R"("tensor_parallel": {"autotp_size": 2, "partition_config": {"a": 1}})"), 2),
      HasSubstr("tensor_parallel.partition_config"));
  EXPECT_THAT(Refusal(With(R"("sequence_parallel_size": 2)")),
              HasSubstr("tensor_parallel.sequence_parallel, which divide the same activations"));
}

TEST(EngineConfigTest, NamesPartsOnSeveralNodes) {
  const TensorParallelConfig four = {.size = 4};
  EXPECT_EQ(PartsAcrossNodes(four, 8, 8), "");
  EXPECT_EQ(PartsAcrossNodes({.size = 1}, 3, 5), "");
  EXPECT_THAT(PartsAcrossNodes(four, 0, 6), HasSubstr("is 4, but the ranks 4 to 7 that divide"));
  EXPECT_THAT(PartsAcrossNodes(four, 6, 6), HasSubstr("the ranks 4 to 7"));
  EXPECT_THAT(PartsAcrossNodes(four, 0, 2), HasSubstr("the ranks 0 to 3"));
  EXPECT_EQ(PartsAcrossNodes({.size = 4, .allow_across_nodes = true}, 0, 2), "");
}

TEST(EngineConfigTest, TakesStagesOfProgram) {
  const auto parse = [](const std::string& pipeline, int64_t stages) {
    return ParseEngineConfig(
        R"({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5)" + pipeline +
            "}",
        "ds.json", /*ranks=*/4, /*optimizer_json=*/"", {.stages = stages});
  };
  for (const char* pipeline :
       {"", R"(, "pipeline": {"stages": "auto"})", R"(, "pipeline": {"stages": 2})"}) {
    const EngineConfig config = parse(pipeline, 2);
    EXPECT_EQ(config.pipeline.stages, 2) << pipeline;
    EXPECT_EQ(config.batch.train_batch_size, 3 * 5 * 2) << pipeline;
  }
  try {
    parse(R"(, "pipeline": {"stages": 4})", 2);
    FAIL();
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), HasSubstr("pipeline.stages is 4, but the program's PipelineModule"));
  }
}

TEST(EngineConfigTest, ReadsMonitors) {
  const EngineConfig plain = Parse(R"({"train_batch_size": 8})");
  const MonitorsConfig& none = plain.monitors;
  EXPECT_FALSE(none.csv || none.tensorboard || none.flops_profiler || none.comms_logger ||
               plain.wall_clock_breakdown);
  const EngineConfig reporting = Parse(R"({"train_batch_size": 8,
      "csv_monitor": {"enabled": true, "output_path": "/out", "job_name": "job"},
      "tensorboard": {"enabled": true},
      "flops_profiler": {"enabled": true, "profile_step": 5, "module_depth": 2, "top_modules": 3,
                         "detailed": false, "output_file": "f.txt"},
      "comms_logger": {"enabled": true, "verbose": true, "prof_all": false, "prof_ops": ["send"]},
      "wall_clock_breakdown": true})");
  const MonitorsConfig& all = reporting.monitors;
  EXPECT_EQ(all.csv->folder(), "/out/job");
  EXPECT_EQ(all.tensorboard->folder(), "DeepSpeedJobName");
  EXPECT_EQ(all.flops_profiler->profile_step, 5);
  EXPECT_EQ(all.flops_profiler->module_depth, 2);
  EXPECT_EQ(all.flops_profiler->top_modules, 3);
  EXPECT_FALSE(all.flops_profiler->detailed);
  EXPECT_EQ(all.flops_profiler->output_file, "f.txt");
  EXPECT_TRUE(all.comms_logger->verbose);
  EXPECT_EQ(all.comms_logger->operations, std::set<std::string>{"send"});
  EXPECT_TRUE(reporting.wall_clock_breakdown);
  EXPECT_EQ(Parse(R"({"train_batch_size": 8, "comms_logger": {"enabled": true, "prof_ops": []}})")
                .monitors.comms_logger->operations,
            std::nullopt);
}

// Users' files spell out DeepSpeed's defaults, and sections that are disabled.
TEST(EngineConfigTest, AcceptsDefaultsAndDisabledSections) {
  for (
      const char* keys : {
          R"("activation_checkpointing": {"partition_activations": false, "number_checkpoints": null,
               "cpu_checkpointing": false, "contiguous_memory_optimization": false, "profile": false,
               "synchronize_checkpoint_boundary": false})",
          R"("pipeline": {"stages": "auto", "partition": "best", "seed_layers": false,
               "activation_checkpoint_interval": 0})",
          R"("checkpoint": {"tag_validation": "WARN", "load_universal": false,
               "use_node_local_storage": false, "parallel_write": {"pipeline_stage": false}})",
          R"("flops_profiler": {"enabled": false, "profile_step": 5, "module_depth": 3,
               "top_modules": 3, "detailed": false, "output_file": "f.txt"})",
          R"("csv_monitor": {"enabled": false, "output_path": "x", "job_name": "y"})",
          R"("tensorboard": {}, "wandb": null, "comet": {"enabled": false, "project": "p"})",
          R"("comms_logger": {"enabled": false, "verbose": true, "prof_all": true, "debug": false})",
          R"("timers": {"throughput": {"enabled": true, "synchronized": true}})",
          R"("wall_clock_breakdown": false, "sparse_gradients": false, "sparse_attention": null)",
          R"("elasticity": {"enabled": false, "max_train_batch_size": 2000}, "compile": {},
              "autotuning": {"enabled": false}, "hybrid_engine": {"enabled": false})",
          R"("amp": {"enabled": false}, "fp16": {"enabled": false}, "bf16": {"enabled": false})",
          R"("zero_optimization": {"stage": 0, "contiguous_gradients": true, "reduce_scatter": true,
               "allgather_partitions": true, "allgather_bucket_size": 2e8, "zero_hpz_partition_size": 1,
               "offload_param": {"device": "none", "pin_memory": false}, "stage3_max_live_parameters": 1e9,
               "offload_optimizer": {"device": "none"}, "ignore_unused_parameters": false})",
          R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}})",
          R"("activation_checkpointing": {"partition_activations": true, "number_checkpoints": false,
               "contiguous_memory_optimization": true, "synchronize_checkpoint_boundary": true})",
          R"("fp16": {"enabled": true, "auto_cast": true}, "tensor_parallel": {"autotp_size": 1})",
          R"("zero_force_ds_cpu_optimizer": false, "disable_allgather": true,
              "disable_python_gc": true, "pipeline": {"pipe_partitioned": false})",
          R"("zero_optimization": {"stage": 3, "elastic_checkpoint": true,
               "memory_efficient_linear": false, "override_module_apply": false,
               "module_granularity_threshold": 7, "allgather_sequential": true,
               "cpu_offload_use_pin_memory": true, "log_trace_cache_warnings": true})",
          "\"data_types\": {\"keep_in_fp32_modules\": \"auto\"}",
      }) {
    EXPECT_EQ(Refusal(With(keys)), "accepted") << keys;
  }
}

TEST(EngineConfigTest, ReadsOlderNamesAndFieldNamesOfZero) {
  const ZeroConfig fields =
      Parse(With(R"("zero_optimization": {"stage": 3, "prefetch_bucket_size": 7,
                    "param_persistence_threshold": 6, "max_live_parameters": 5,
                    "max_reuse_distance": 4, "gather_16bit_weights_on_model_save": true})"))
          .zero;
  EXPECT_EQ(fields.prefetch_bucket_size, 7);
  EXPECT_EQ(fields.param_persistence_threshold, 6);
  EXPECT_EQ(fields.max_live_parameters, 5);
  EXPECT_EQ(fields.max_reuse_distance, 4);
  EXPECT_TRUE(fields.gather_16bit_weights_on_model_save);
  const ZeroConfig older =
      Parse(
          With(R"("zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_param": true,
                    "stage3_gather_fp16_weights_on_model_save": true})"))
          .zero;
  EXPECT_EQ(older.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(older.offload_param.device, OffloadDevice::kCpu);
  EXPECT_TRUE(older.gather_16bit_weights_on_model_save);
  const ZeroConfig first = Parse(With(R"("zero_optimization": true, "allgather_size": 9)")).zero;
  EXPECT_EQ(first.stage, 1);
  EXPECT_EQ(first.allgather_bucket_size, 9);
  EXPECT_EQ(Parse(With(R"("zero_optimization": false)")).zero.stage, 0);
}

TEST(EngineConfigTest, SkipsByteOrderMark) {
  EXPECT_EQ(Parse("\xEF\xBB\xBF{\"train_batch_size\": 8}").batch.train_batch_size, 8);
}

TEST(EngineConfigTest, ResolvesAutoAndListsResolvedValues) {
  const EngineConfig config = Parse(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4,
          "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
          "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3,
            "reduce_bucket_size": "auto", "stage3_max_live_parameters": "auto"},
          "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "betas": "auto", "eps": "auto",
            "weight_decay": "auto"}},
          "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
            "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}})",
      2);
  EXPECT_EQ(config.batch.train_batch_size, 8);
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(config.precision.model, Dtype::kFloat32);
  EXPECT_EQ(config.zero.reduce_bucket_size, ZeroConfig().reduce_bucket_size);
  EXPECT_EQ(config.optimizer->beta2, 0.999);
  const auto& schedule = std::get<WarmupDecayLr>(config.scheduler.schedule);
  EXPECT_EQ(schedule.max_lr, 0.1);
  EXPECT_EQ(schedule.warmup.num_steps, 0);
  EXPECT_TRUE(config.scheduler.fits_run);
  EXPECT_THAT(config.auto_notice,
              StartsWith("\"auto\" is taken as bf16.enabled false, gradient_clipping 1.0, "));
  EXPECT_THAT(config.auto_notice, HasSubstr("scheduler.params.warmup_max_lr 0.1"));
  EXPECT_EQ(Parse(R"({"train_batch_size": 8})").auto_notice, "");
}

TEST(EngineConfigTest, FitToRunSetsScheduleLengthOnlyIfAuto) {
  const auto length = [](const std::string& steps) {
    SchedulerConfig scheduler =
        Parse(With(R"("scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": )" +
                   steps + "}}"))
            .scheduler;
    FitToRun(scheduler, 70);
    return std::get<WarmupCosineLr>(scheduler.schedule).total_num_steps;
  };
  EXPECT_EQ(length("\"auto\""), 70);
  EXPECT_EQ(length("9"), 9);
}

TEST(EngineConfigTest, UsesProgramsOptimizerWithoutSection) {
  const std::string lion = R"({"type": "Lion", "params": {"lr": 0.5}})";
  EXPECT_EQ(ParseEngineConfig(With(R"("gradient_clipping": 2)"), "c", 1, lion).optimizer->lr, 0.5);
  EXPECT_EQ(
      ParseEngineConfig(With(R"("optimizer": {"type": "SGD"})"), "c", 1, lion).optimizer->type,
      OptimizerConfig::Type::kSgd);
  try {
    ParseEngineConfig(With(R"("gradient_clipping": 2)"), "c", 1, R"({"type": "Lyon"})");
    FAIL();
  } catch (const TrainError& error) {
    EXPECT_THAT(error.what(), StartsWith("the program's optimizer: type is \"Lyon\""));
  }
}

TEST(EngineConfigTest, DescribesResolvedSettings) {
  const EngineConfig config = Parse(
      With(
          R"("gradient_accumulation_steps": 2, "optimizer": {"type": "Adam", "params": {"betas": [0.8, 0.9]},
         "param_groups": [{"max_dims": 1, "weight_decay": 0}]},
         "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 50}},
         "fp16": {"enabled": true})"),
      2);
  const json shown = json::parse(DescribeEngineConfig(config));
  EXPECT_EQ(shown["train_micro_batch_size_per_gpu"], 2);
  EXPECT_EQ(shown["optimizer"]["params"]["betas"], json({0.8, 0.9}));
  EXPECT_EQ(shown["optimizer"]["params"]["adam_w_mode"], true);
  EXPECT_EQ(shown["optimizer"]["param_groups"][0]["max_dims"], 1);
  EXPECT_EQ(shown["scheduler"]["params"]["total_num_steps"], 50);
  EXPECT_EQ(shown["precision"]["model"], "fp16");
  EXPECT_EQ(shown["precision"]["grad_accum_dtype"], "fp32");
  EXPECT_EQ(shown["precision"]["loss_scaler"]["initial_scale_power"], 16);
  EXPECT_EQ(shown["communication_data_type"], "fp16");
  EXPECT_EQ(shown["zero_optimization"]["overlap_comm"], true);
  EXPECT_EQ(shown["gradient_clipping"], 1.0);
}

// Contains keys of every section.
const char kEverything[] = R"({
  "train_batch_size": 64, "gradient_accumulation_steps": 4, "steps_per_print": 10, // comment
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8},
                "param_groups": [{"names": ["*.bias"], "weight_decay": 0}]},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-2}},
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 100,
           "hysteresis": 2, "consecutive_hysteresis": true, "min_loss_scale": 1},
  "bf16": {"enabled": false, "check_grad_overflow": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "amp": {"enabled": false, "opt_level": "O2", "loss_scale": "dynamic"},
  "torch_autocast": {"enabled": false, "dtype": "bfloat16"},
  "zero_optimization": {"stage": 0, "overlap_comm": true, "reduce_bucket_size": 5e8,
                        "offload_optimizer": {"device": "none", "ratio": 1.0}},
  "communication_data_type": "fp32", "prescale_gradients": false, "gradient_allreduce_op": "mean",
  "gradient_clipping": 1.0, "dump_state": false, "log_level": "info",
  "tensorboard": {"enabled": false, "output_path": "", "job_name": "x"},
  "checkpoint": {"tag_validation": "WARN"}, "timers": {"throughput": {"enabled": true}}})";

// Returns the text after one change of a byte or a piece.
std::string Mutated(std::string text, std::mt19937& random) {
  static const char* const kPieces[] = {"{",  "}",     "[",     "]",        ",",
                                        ":",  "\"",    "null",  "true",     "-1",
                                        "0",  "1e999", "1e308", "\"auto\"", "9223372036854775808",
                                        "//", "/*",    "\xff",  "\\u0000",  "\"enabled\"",
                                        "{}", "[]"};
  const size_t at = random() % text.size();
  switch (random() % 4) {
    case 0:
      text[at] = static_cast<char>(random());
      return text;
    case 1:
      return text.erase(at, 1 + random() % 20);
    case 2:
      return text.insert(at, kPieces[random() % std::size(kPieces)]);
    default:
      return text.insert(at, text.substr(random() % text.size(), random() % 40));
  }
}

void AllLeaves(const json& value, const json::json_pointer& at,
               std::vector<json::json_pointer>& out) {
  out.push_back(at);
  if (!value.is_structured()) return;
  for (const auto& [key, inner] : value.items()) AllLeaves(inner, at / key, out);
}

TEST(EngineConfigTest, ParsesOrRefusesAnyText) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  ASSERT_EQ(Refusal(kEverything), "accepted");
  int accepted = 0;
  const auto check = [&](const std::string& text) {
    try {
      const EngineConfig config = Parse(text, 1 + random() % 4);
      EXPECT_EQ(config.batch.micro_batch_size * config.batch.accumulation_steps > 0, true);
      EXPECT_TRUE(json::accept(DescribeEngineConfig(config)));
      ++accepted;
    } catch (const TrainError& error) {
      EXPECT_THAT(error.what(), StartsWith("ds.json: ")) << text;
    }
  };
  for (int round = 0; round < 3'000; ++round) {
    std::string text = kEverything;
    for (size_t n = 1 + random() % 3; n > 0; --n) text = Mutated(std::move(text), random);
    check(text);
  }
  // Each of these texts is valid JSON with one value of another kind.
  const json everything = json::parse(kEverything, nullptr, true, true);
  std::vector<json::json_pointer> places;
  AllLeaves(everything, json::json_pointer(), places);
  const json values[] = {nullptr,
                         true,
                         false,
                         0,
                         -1,
                         1e300,
                         1ull << 63,
                         0.5,
                         "",
                         "auto",
                         "fp16",
                         json::array(),
                         json::object(),
                         json::array({1, "x"}),
                         {{"enabled", true}}};
  for (const json::json_pointer& place : places) {
    for (const json& value : values) {
      json changed = everything;
      changed[place] = value;
      check(changed.dump());
    }
  }
  EXPECT_GT(accepted, 100) << "the mutations are too wild to reach the depths";
}

}  // namespace
}  // namespace dslaunch::engine_config_test
