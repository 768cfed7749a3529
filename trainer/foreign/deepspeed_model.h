// Reads the parts of DeepSpeed's model and optimizer files that are the same at all stages.
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
  // Value of param_shapes: trained parameters of each group.
  std::vector<std::vector<NamedShape>> groups;
  std::vector<NamedShape> frozen;  // value of frozen_param_shapes, which stage 3 needs
  int64_t stage = 0;               // ZeRO stage that ds_config sets
  bool bf16 = false;               // true if ds_config enables bf16
  int64_t world_size = 0;          // number of data-parallel ranks; 0 if not known
  bool reordered = false;          // value of round_robin_gradients in ds_config
  bool has_schedule = false;       // true if lr_scheduler counts updates
  int64_t hysteresis = 2;          // initial hysteresis of the loss scaler for fp16
};

// Reads a model file except for its value "module". Sets the plan's position, optimizer, dtype,
// client state and notes. Throws kBadInput for damaged files, and for experts, pipelines and 1-bit
// optimizers.
DeepSpeedModel ReadDeepSpeedModel(const TorchArchive& archive, ForeignCheckpoint* plan);

// Adds the tensors of the value "module" that the optimizer does not have: buffers, frozen
// parameters and, for names that `trained` lacks, weights in the model's dtype. Also adds aliases.
// At stage 3, "module" has empty tensors for frozen and trained parameters, which are skipped.
void AddDeepSpeedModule(const TorchArchive& archive, const DeepSpeedModel& model,
                        const std::set<std::string>& trained, ForeignCheckpoint* plan);

// Sets the learning rates from `param_groups` of a PyTorch optimizer's state. Also sets the
// optimizer's type if a group has decoupled_weight_decay.
void ReadParamGroups(const ArchiveField& groups, ForeignCheckpoint* plan);

// Returns the number of updates that an optimizer's state includes: `step` of a parameter's state,
// else `step` of the first of `param_groups`; -1 if `step` is in neither of them. Either argument
// may be nullopt.
int64_t StepOf(const std::optional<ArchiveField>& parameter_state,
               const std::optional<ArchiveField>& param_groups);

// Sets the number of updates of the optimizer and the schedule from StepOf(), or from the number of
// steps that were not skipped if StepOf() returns -1.
void ReadUpdates(const std::optional<ArchiveField>& parameter_state,
                 const std::optional<ArchiveField>& param_groups, const DeepSpeedModel& model,
                 ForeignCheckpoint* plan);

// Sets the plan's loss scaler from cur_scale, cur_iter and related keys of `scaler`, which is a
// DeepSpeed scaler, or an optimizer's state without ZeRO.
void ReadLossScaler(const ArchiveField& scaler, const DeepSpeedModel& model,
                    ForeignCheckpoint* plan);

}  // namespace dslaunch
