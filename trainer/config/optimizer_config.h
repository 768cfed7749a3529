// The section "optimizer" of an engine configuration: DeepSpeed's types, parameter names, defaults
// and meaning. PyTorch's optimizers, which DeepSpeed passes on, have PyTorch's.
//
//   "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "weight_decay": 0.1},
//                 "param_groups": [{"max_dims": 1, "weight_decay": 0},
//                                  {"names": ["head.*"], "lr": 0.01}]}
//
// "param_groups" is an extension of dslaunch: DeepSpeed reads groups from the Python program only.
// A parameter belongs to the first group that matches it; "names" are shell patterns, "max_dims" is
// the largest number of dimensions of the tensor.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/config/parameter_groups.h"

namespace dslaunch {

class JsonObject;

struct OptimizerConfig {
  enum class Type {
    kAdam,
    kAdamW,
    kSgd,
    kAdagrad,
    kRmsprop,
    kLamb,
    kLion,
    kOneBitAdam,
    kZeroOneAdam,
    kOneBitLamb,
  };
  Type type = Type::kAdamW;
  std::string name;  // spelled as in the recipe
  double lr = 1e-3;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;        // all but SGD, Adagrad, RMSprop
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
  double max_coeff = 10, min_coeff = 0.01;  // LAMB, OneBitLamb: bounds of the trust ratio
  bool eps_inside_sqrt = false;             // LAMB
  // OneBitAdam, OneBitLamb: number of updates with whole gradients, after which the variance is
  // fixed.
  int64_t freeze_step = 100000;
  // ZeroOneAdam: number of updates after which the variance is fixed; number of variance updates
  // after which the interval between them doubles; the latter also for the interval between two
  // exchanges, in steps, and its maximum.
  int64_t var_freeze_step = 100000, var_update_scaler = 16;
  int64_t local_step_scaler = 32678, local_step_clipper = 16;
  // OneBitLamb: decay of the average trust ratio, and bounds of the factor by which it is scaled
  // later.
  double coeff_beta = 0.9, factor_max = 4, factor_min = 0.5, factor_threshold = 0.1;
  std::vector<ParameterGroupConfig> groups;

  // Whether the optimizer exchanges 1 bit for each element of its state instead of gradients.
  bool CompressesExchanges() const {
    return type == Type::kOneBitAdam || type == Type::kZeroOneAdam || type == Type::kOneBitLamb;
  }
  bool IsAdam() const { return type == Type::kAdam || type == Type::kAdamW; }
  bool IsLamb() const { return type == Type::kLamb || type == Type::kOneBitLamb; }
  bool HasBetas() const {
    return IsAdam() || type == Type::kLion || IsLamb() || CompressesExchanges();
  }
};

// Throws TrainError kBadInput, naming the key.
OptimizerConfig ParseOptimizer(JsonObject object);
nlohmann::ordered_json ShowOptimizer(const OptimizerConfig& optimizer);

}  // namespace dslaunch
