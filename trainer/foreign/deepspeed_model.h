// Reads the parts of DeepSpeed's files of model and optimizer states that are alike at all stages.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/foreign/archive_field.h"
#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

struct DeepSpeedModel {
  std::vector<std::vector<NamedShape>> groups;  // param_shapes: trained parameters by group
  std::vector<NamedShape> frozen;               // frozen_param_shapes, which stage 3 needs
  int64_t stage = 0;                            // ZeRO stage in ds_config
  bool bf16 = false;                            // whether ds_config enables bf16
  int64_t world_size = 0;                       // data-parallel ranks; 0 if not known
  bool reordered = false;                       // round_robin_gradients of ds_config
  bool has_schedule = false;                    // lr_scheduler counts updates
  int64_t hysteresis = 2;                       // initial value for fp16
};

// Reads a model file except for `module`, and sets position, optimizer, dtype, client state and
// notes of the plan. Throws kBadInput, also for experts, pipelines and 1-bit optimizers.
DeepSpeedModel ReadDeepSpeedModel(const TorchArchive& archive, ForeignCheckpoint* plan);

// Adds what the optimizer does not have, from `module`: buffers, frozen parameters and, where
// `trained` lacks them, weights in the model's dtype. Also adds aliases. At stage 3 `module` has
// empty tensors in place of `frozen` and of trained parameters, which are skipped.
void AddDeepSpeedModule(const TorchArchive& archive, const DeepSpeedModel& model,
                        const std::set<std::string>& trained, ForeignCheckpoint* plan);

// Sets learning rates from `param_groups` of a PyTorch optimizer's state, and the optimizer's type
// if a group has decoupled_weight_decay.
void ReadParamGroups(const ArchiveField& groups, ForeignCheckpoint* plan);

// Returns the updates that an optimizer's state includes: `step` of a parameter's state, else of
// the first of `param_groups`; -1 if neither has it. Either argument may be missing.
int64_t StepOf(const std::optional<ArchiveField>& parameter_state,
               const std::optional<ArchiveField>& param_groups);

// Sets the updates of optimizer and schedule from StepOf(), else from the steps that were not
// skipped.
void ReadUpdates(const std::optional<ArchiveField>& parameter_state,
                 const std::optional<ArchiveField>& param_groups, const DeepSpeedModel& model,
                 ForeignCheckpoint* plan);

// Sets the loss scaler from cur_scale, cur_iter and so on of `scaler`, a DeepSpeed scaler or
// an optimizer's state without ZeRO.
void ReadLossScaler(const ArchiveField& scaler, const DeepSpeedModel& model,
                    ForeignCheckpoint* plan);

}  // namespace dslaunch
