#include <nlohmann/json.hpp>

#include "trainer/config/engine_config.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order they are written here
using OptimizerType = OptimizerConfig::Type;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json OrNull(const std::optional<Dtype>& dtype) { return dtype ? Json(DtypeName(*dtype)) : Json(); }

Json DescribeParams(const OptimizerConfig& optimizer) {
  Json json = {{"lr", optimizer.lr}, {"weight_decay", optimizer.weight_decay}};
  if (optimizer.HasBetas()) json["betas"] = {optimizer.beta1, optimizer.beta2};
  if (optimizer.type != OptimizerType::kSgd && optimizer.type != OptimizerType::kLion)
    json["eps"] = optimizer.eps;
  switch (optimizer.type) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      json["adam_w_mode"] = optimizer.type == OptimizerType::kAdamW;
      json["bias_correction"] = optimizer.bias_correction;
      json["amsgrad"] = optimizer.amsgrad;
      break;
    case OptimizerType::kSgd:
      json["momentum"] = optimizer.momentum;
      json["dampening"] = optimizer.dampening;
      json["nesterov"] = optimizer.nesterov;
      break;
    case OptimizerType::kAdagrad:
      json["lr_decay"] = optimizer.lr_decay;
      json["initial_accumulator_value"] = optimizer.initial_accumulator_value;
      break;
    case OptimizerType::kRmsprop:
      json["momentum"] = optimizer.momentum;
      json["alpha"] = optimizer.alpha;
      json["centered"] = optimizer.centered;
      break;
    case OptimizerType::kLamb:
      json["bias_correction"] = optimizer.bias_correction;
      json["max_coeff"] = optimizer.max_coeff;
      json["min_coeff"] = optimizer.min_coeff;
      json["eps_inside_sqrt"] = optimizer.eps_inside_sqrt;
      break;
    case OptimizerType::kLion:
      break;
    case OptimizerType::kOneBitLamb:
      json["max_coeff"] = optimizer.max_coeff;
      json["min_coeff"] = optimizer.min_coeff;
      json["coeff_beta"] = optimizer.coeff_beta;
      json["factor_max"] = optimizer.factor_max;
      json["factor_min"] = optimizer.factor_min;
      json["factor_threshold"] = optimizer.factor_threshold;
      [[fallthrough]];
    case OptimizerType::kOneBitAdam:
      json["freeze_step"] = optimizer.freeze_step;
      break;
    case OptimizerType::kZeroOneAdam:
      json["var_freeze_step"] = optimizer.var_freeze_step;
      json["var_update_scaler"] = optimizer.var_update_scaler;
      json["local_step_scaler"] = optimizer.local_step_scaler;
      json["local_step_clipper"] = optimizer.local_step_clipper;
      break;
  }
  return json;
}

Json Describe(const ParallelConfig& parallel) {
  using Mode = ParallelConfig::Mode;
  Json json = {{"mode", ParallelModeName(parallel.mode)}};
  if (parallel.mode == Mode::kParameterServer) json["servers"] = parallel.servers;
  if (parallel.staleness) json["staleness"] = *parallel.staleness;
  if (parallel.TrainsApart()) json["inner_steps"] = parallel.inner_steps;
  if (parallel.mode == Mode::kDiloco) {
    json["outer_lr"] = parallel.outer_lr;
    json["outer_momentum"] = parallel.outer_momentum;
    json["outer_nesterov"] = parallel.outer_nesterov;
  }
  if (parallel.mode == Mode::kPowerSgd) {
    json["matrix_approximation_rank"] = parallel.matrix_approximation_rank;
    json["start_powerSGD_iter"] = parallel.start_iter;
    json["min_compression_rate"] = parallel.min_compression_rate;
    json["use_error_feedback"] = parallel.use_error_feedback;
    json["warm_start"] = parallel.warm_start;
    json["orthogonalization_epsilon"] = parallel.orthogonalization_epsilon;
    json["random_seed"] = parallel.random_seed;
  }
  return json;
}

Json Describe(const OptimizerConfig& optimizer) {
  Json groups = Json::array();
  for (const ParameterGroupConfig& group : optimizer.groups) {
    groups.push_back({{"names", group.names},
                      {"max_dims", OrNull(group.max_dims)},
                      {"lr", OrNull(group.lr)},
                      {"weight_decay", OrNull(group.weight_decay)}});
  }
  return {{"type", optimizer.name},
          {"params", DescribeParams(optimizer)},
          {"param_groups", std::move(groups)}};
}

Json Describe(const ConstantLr&) { return Json::object(); }
Json Describe(const Warmup& warmup) {
  return {{"warmup_num_steps", warmup.num_steps},
          {"warmup_type", warmup.linear ? "linear" : "log"}};
}
Json Describe(const WarmupLr& schedule) {
  Json json = Describe(schedule.warmup);
  json["warmup_min_lr"] = schedule.min_lr;
  json["warmup_max_lr"] = OrNull(schedule.max_lr);
  return json;
}
Json Describe(const WarmupDecayLr& schedule) {
  Json json = Describe(schedule.warmup);
  json["warmup_min_lr"] = schedule.min_lr;
  json["warmup_max_lr"] = schedule.max_lr;
  json["total_num_steps"] = schedule.total_num_steps;
  return json;
}
Json Describe(const WarmupCosineLr& schedule) {
  Json json = Describe(schedule.warmup);
  json["warmup_min_ratio"] = schedule.warmup_min_ratio;
  json["cos_min_ratio"] = schedule.cos_min_ratio;
  json["total_num_steps"] = schedule.total_num_steps;
  return json;
}
Json Describe(const OneCycle& cycle) {
  return {{"cycle_min_lr", cycle.min_lr},
          {"cycle_max_lr", cycle.max_lr},
          {"cycle_first_step_size", cycle.first_step_size},
          {"cycle_second_step_size", cycle.second_step_size},
          {"cycle_first_stair_count", cycle.first_stairs},
          {"cycle_second_stair_count", cycle.second_stairs},
          {"decay_step_size", cycle.decay_step_size},
          {"decay_lr_rate", cycle.decay_lr_rate},
          {"cycle_momentum", cycle.cycle_momentum},
          {"cycle_min_mom", cycle.min_momentum},
          {"cycle_max_mom", cycle.max_momentum},
          {"decay_mom_rate", cycle.decay_momentum_rate}};
}
Json Describe(const LrRangeTest& test) {
  return {{"lr_range_test_min_lr", test.min_lr},
          {"lr_range_test_step_size", test.step_size},
          {"lr_range_test_step_rate", test.step_rate},
          {"lr_range_test_staircase", test.staircase}};
}
Json Describe(const StepLr& schedule) {
  return {{"step_size", schedule.step_size}, {"gamma", schedule.gamma}};
}
Json Describe(const CosineAnnealingLr& schedule) {
  return {{"T_max", schedule.t_max}, {"eta_min", schedule.eta_min}};
}
Json Describe(const CosineAnnealingWarmRestarts& schedule) {
  return {{"T_0", schedule.t_0}, {"T_mult", schedule.t_mult}, {"eta_min", schedule.eta_min}};
}

Json Describe(const SchedulerConfig& scheduler) {
  if (scheduler.name.empty()) return nullptr;
  return {{"type", scheduler.name},
          {"params", std::visit([](const auto& schedule) { return Describe(schedule); },
                                scheduler.schedule)}};
}

Json Describe(const LossScalerConfig& scaler) {
  if (!scaler.dynamic) return {{"loss_scale", scaler.static_scale}};
  return {{"loss_scale", "dynamic"},
          {"initial_scale_power", scaler.initial_scale_power},
          {"loss_scale_window", scaler.loss_scale_window},
          {"hysteresis", scaler.hysteresis},
          {"consecutive_hysteresis", scaler.consecutive_hysteresis},
          {"min_loss_scale", scaler.min_loss_scale}};
}

Json Describe(const PrecisionConfig& precision) {
  return {{"model", DtypeName(precision.model)},
          {"batch_norm_fp32", precision.batch_norm_float32},
          {"master_weights", precision.master_weights ? Json("fp32") : Json()},
          {"grad_accum_dtype", DtypeName(precision.grad_accumulation)},
          {"autocast", OrNull(precision.autocast)},
          {"loss_scaler", precision.loss_scaler ? Describe(*precision.loss_scaler) : Json()},
          {"skip_overflow", precision.skip_overflow}};
}

const char* DeviceName(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::kNone:
      return "none";
    case OffloadDevice::kCpu:
      return "cpu";
    case OffloadDevice::kNvme:
      return "nvme";
  }
  std::abort();
}

Json Describe(const ZeroConfig::Offload& offload) {
  Json json = {{"device", DeviceName(offload.device)}, {"pin_memory", offload.pin_memory}};
  if (offload.device == OffloadDevice::kNvme) json["nvme_path"] = offload.nvme_path;
  return json;
}

Json Describe(const ZeroConfig& zero, bool overlap) {
  Json json = {
      {"stage", zero.stage},
      {"overlap_comm", overlap},
      {"contiguous_gradients", zero.contiguous_gradients},
      {"reduce_scatter", zero.reduce_scatter},
      {"reduce_bucket_size", zero.reduce_bucket_size},
      {"allgather_partitions", zero.allgather_partitions},
      {"allgather_bucket_size", zero.allgather_bucket_size},
      {"round_robin_gradients", zero.round_robin_gradients},
      {"ignore_unused_parameters", zero.ignore_unused_parameters},
      {"sub_group_size", zero.sub_group_size},
      {"stage3_prefetch_bucket_size", zero.prefetch_bucket_size},
      {"stage3_param_persistence_threshold", zero.param_persistence_threshold},
      {"stage3_model_persistence_threshold", zero.model_persistence_threshold},
      {"stage3_max_live_parameters", zero.max_live_parameters},
      {"stage3_max_reuse_distance", zero.max_reuse_distance},
      {"stage3_gather_16bit_weights_on_model_save", zero.gather_16bit_weights_on_model_save},
      {"offload_optimizer", Describe(zero.offload_optimizer)},
      {"offload_param", Describe(zero.offload_param)}};
  json["offload_optimizer"]["ratio"] = zero.offload_optimizer.ratio;
  return json;
}

Json Describe(const PipelineConfig& pipeline) {
  return {{"stages", pipeline.stages},
          {"partition", pipeline.partition},
          {"seed_layers", pipeline.seed_layers},
          {"activation_checkpoint_interval", pipeline.activation_checkpoint_interval},
          {"schedule", ScheduleTypeName(pipeline.schedule)},
          {"virtual_stages", pipeline.virtual_stages},
          {"rank_order", RankOrderName(pipeline.rank_order)}};
}

Json Describe(const std::optional<MonitorConfig>& monitor) {
  if (!monitor) return {{"enabled", false}};
  return {{"enabled", true}, {"folder", monitor->folder}};
}

Json Describe(const std::optional<FlopsProfilerConfig>& profiler) {
  if (!profiler) return {{"enabled", false}};
  return {{"enabled", true},
          {"profile_step", profiler->profile_step},
          {"module_depth", profiler->module_depth},
          {"top_modules", profiler->top_modules},
          {"detailed", profiler->detailed},
          {"output_file", profiler->output_file}};
}

Json Describe(const std::optional<CommsLoggerConfig>& logger) {
  if (!logger) return {{"enabled", false}};
  return {{"enabled", true},
          {"verbose", logger->verbose},
          {"prof_all", !logger->operations},
          {"prof_ops", OrNull(logger->operations)}};
}

}  // namespace

std::string DescribeEngineConfig(const EngineConfig& config) {
  const CommunicationConfig& communication = config.communication;
  const Json json = {
      {"train_batch_size", config.batch.train_batch_size},
      {"train_micro_batch_size_per_gpu", config.batch.micro_batch_size},
      {"gradient_accumulation_steps", config.batch.accumulation_steps},
      {"optimizer", config.optimizer ? Describe(*config.optimizer) : Json()},
      {"scheduler", Describe(config.scheduler)},
      {"precision", Describe(config.precision)},
      {"communication_data_type", DtypeName(communication.dtype.value_or(config.precision.model))},
      {"prescale_gradients", communication.prescale},
      {"gradient_predivide_factor", communication.predivide_factor},
      {"gradient_allreduce_op", communication.sum ? "sum" : "mean"},
      {"zero_optimization", Describe(config.zero, communication.overlap)},
      {"parallel", Describe(config.parallel)},
      {"pipeline", Describe(config.pipeline)},
      {"activation_checkpointing",
       {{"number_checkpoints",
         config.number_checkpoints > 0 ? Json(config.number_checkpoints) : Json()}}},
      {"gradient_clipping", config.gradient_clipping},
      {"steps_per_print", config.steps_per_print > 0 ? Json(config.steps_per_print) : Json()},
      {"dataloader_drop_last", config.dataloader_drop_last},
      {"broadcast_buffers", config.broadcast_buffers},
      {"checkpoint", {{"tag_validation", TagValidationName(config.tag_validation)}}},
      {"csv_monitor", Describe(config.monitors.csv)},
      {"tensorboard", Describe(config.monitors.tensorboard)},
      {"flops_profiler", Describe(config.monitors.flops_profiler)},
      {"comms_logger", Describe(config.monitors.comms_logger)},
      {"wall_clock_breakdown", config.monitors.wall_clock_breakdown},
      {"dump_state", config.dump_state},
      {"memory_breakdown", config.memory_breakdown},
      {"cuda_graph", config.cuda_graph},
      {"zero_allow_untested_optimizer", config.allow_untested_optimizer},
      {"log_level", EngineLogLevelName(config.log_level)}};
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace dslaunch
