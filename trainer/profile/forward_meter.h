// Measures a model's forward pass as it runs: counts the floating-point operations and determines
// the module of each operator.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/profile/module_table.h"

namespace dslaunch {

// Observes the operators of the thread that created the meter, while the meter exists. Ignores
// operators of backward passes, including recomputed operators. At most one meter may exist at a
// time. Costs about a microsecond per operator.
class ForwardMeter {
 public:
  // Measures passes of `module`, which must outlive the meter and whose parameters must not be
  // replaced.
  explicit ForwardMeter(const torch::nn::Module& module);
  ~ForwardMeter();
  ForwardMeter(const ForwardMeter&) = delete;
  ForwardMeter& operator=(const ForwardMeter&) = delete;

  double flops() const;
  // Returns the outermost operators in the order in which they started.
  const std::vector<ForwardOp>& operators() const { return operators_; }

 private:
  struct Hooks;

  // Name of the module of each parameter, keyed by the parameter's storage and its offset in the
  // storage.
  std::map<std::pair<const void*, int64_t>, std::string> module_of_;
  std::vector<ForwardOp> operators_;
  int depth_ = 0;          // nesting depth of operators
  int formula_depth_ = 0;  // nesting depth of operators with formulas
  uint64_t handle_ = 0;
};

}  // namespace dslaunch
