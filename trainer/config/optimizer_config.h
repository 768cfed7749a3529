// The sections "optimizer" and "scheduler" of an engine configuration: DeepSpeed's types, parameter
// names, defaults and meaning. PyTorch's optimizers and schedulers, which DeepSpeed hands through,
// keep PyTorch's.
//
//   "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "weight_decay": 0.1},
//                 "param_groups": [{"max_dims": 1, "weight_decay": 0},
//                                  {"names": ["head.*"], "lr": 0.01}]}
//   "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
//
// "param_groups" is this program's own: DeepSpeed takes groups from the Python program only. The
// first group that fits takes a parameter; "names" are shell patterns, "max_dims" the most
// dimensions the tensor may have.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/lr_schedule.h"
#include "trainer/config/parameter_groups.h"

namespace dslaunch {

class JsonObject;

struct OptimizerConfig {
  enum class Type { kAdam, kAdamW, kSgd, kAdagrad, kRmsprop, kLamb, kLion };
  Type type = Type::kAdamW;
  std::string name;  // as written in the recipe
  double lr = 1e-3;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;        // Adam, AdamW, LAMB, Lion
  double eps = 1e-8;                        // all but SGD and Lion
  bool bias_correction = true;              // Adam, AdamW, LAMB
  bool amsgrad = false;                     // Adam, AdamW
  double momentum = 0;                      // SGD, RMSprop
  double dampening = 0;                     // SGD
  bool nesterov = false;                    // SGD
  double lr_decay = 0;                      // Adagrad
  double initial_accumulator_value = 0;     // Adagrad
  double alpha = 0.99;                      // RMSprop
  bool centered = false;                    // RMSprop
  double max_coeff = 10, min_coeff = 0.01;  // LAMB: bounds of the trust ratio
  bool eps_inside_sqrt = false;             // LAMB
  std::vector<ParameterGroupConfig> groups;

  bool HasBetas() const {
    return type == Type::kAdam || type == Type::kAdamW || type == Type::kLamb ||
           type == Type::kLion;
  }
};

struct SchedulerConfig {
  std::string name;  // as written in the recipe; empty: none
  LrSchedule schedule;
};

// Throw TrainError kBadInput, naming the key.
OptimizerConfig ParseOptimizer(JsonObject object);
SchedulerConfig ParseScheduler(JsonObject object, const OptimizerConfig& optimizer);

}  // namespace dslaunch
