// Defines the section "optimizer" of an engine configuration, with DeepSpeed's types, parameter
// names, defaults and meaning. PyTorch's optimizers, which DeepSpeed calls, have PyTorch's names
// and defaults.
//
//   "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "weight_decay": 0.1},
//                 "param_groups": [{"max_dims": 1, "weight_decay": 0},
//                                  {"names": ["head.*"], "lr": 0.01}]}
//
// "param_groups" is an extension of dslaunch: DeepSpeed reads groups only from the Python program.
// A parameter belongs to the first group that matches it; "names" are shell patterns, and
// "max_dims" is the maximum number of dimensions of the tensor.
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
  std::string name;  // name of the type, spelled as in the recipe
  double lr = 1e-3;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;        // used by all types except SGD, Adagrad and RMSprop
  double eps = 1e-8;                        // used by all types except SGD and Lion
  bool bias_correction = true;              // used by Adam, AdamW and LAMB
  bool amsgrad = false;                     // used by Adam and AdamW
  double momentum = 0;                      // used by SGD and RMSprop
  double dampening = 0;                     // used by SGD
  bool nesterov = false;                    // used by SGD
  double lr_decay = 0;                      // used by Adagrad
  double initial_accumulator_value = 0;     // used by Adagrad
  double alpha = 0.99;                      // used by RMSprop
  bool centered = false;                    // used by RMSprop
  double max_coeff = 10, min_coeff = 0.01;  // bounds of the trust ratio; for LAMB and OneBitLamb
  bool eps_inside_sqrt = false;             // used by LAMB
  // Number of updates with whole gradients, after which the variance is fixed; for OneBitAdam and
  // OneBitLamb.
  int64_t freeze_step = 100000;
  // Settings of ZeroOneAdam. var_freeze_step is the number of updates after which the variance is
  // fixed. var_update_scaler is the number of variance updates after which the interval between
  // them doubles.
  int64_t var_freeze_step = 100000, var_update_scaler = 16;
  // Settings of ZeroOneAdam. local_step_scaler is the number of steps after which the interval
  // between two exchanges doubles, and local_step_clipper is the maximum of that interval.
  int64_t local_step_scaler = 32678, local_step_clipper = 16;
  // Settings of OneBitLamb. coeff_beta is the decay of the average trust ratio; the others bound
  // the factor by which the trust ratio is scaled later.
  double coeff_beta = 0.9, factor_max = 4, factor_min = 0.5, factor_threshold = 0.1;
  std::vector<ParameterGroupConfig> groups;

  // Returns whether the optimizer exchanges 1 bit for each element of its state, instead of
  // gradients.
  bool CompressesExchanges() const {
    return type == Type::kOneBitAdam || type == Type::kZeroOneAdam || type == Type::kOneBitLamb;
  }
  bool IsAdam() const { return type == Type::kAdam || type == Type::kAdamW; }
  bool IsLamb() const { return type == Type::kLamb || type == Type::kOneBitLamb; }
  bool HasBetas() const {
    return IsAdam() || type == Type::kLion || IsLamb() || CompressesExchanges();
  }
};

// Reads the section "optimizer". Throws TrainError kBadInput, naming the key.
OptimizerConfig ParseOptimizer(JsonObject object);
nlohmann::ordered_json ShowOptimizer(const OptimizerConfig& optimizer);

}  // namespace dslaunch
