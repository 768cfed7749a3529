// Measures a model's forward pass as it runs: counts floating-point operations, and finds the
// module of each operator.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/profile/module_table.h"

namespace dslaunch {

// While it exists, sees the operators run by the thread that created it, except those of backward
// passes, including recomputed ones. At most one at a time. Costs about a microsecond per operator.
class ForwardMeter {
 public:
  // `module` must outlive the meter and keep its parameters.
  explicit ForwardMeter(const torch::nn::Module& module);
  ~ForwardMeter();
  ForwardMeter(const ForwardMeter&) = delete;
  ForwardMeter& operator=(const ForwardMeter&) = delete;

  double flops() const;
  // Returns the outermost operators, in order.
  const std::vector<ForwardOp>& operators() const { return operators_; }

 private:
  struct Hooks;

  // By location of a parameter: its storage and its offset in it.
  std::map<std::pair<const void*, int64_t>, std::string> module_of_;
  std::vector<ForwardOp> operators_;
  int depth_ = 0;          // nesting depth of operators
  int formula_depth_ = 0;  // nesting depth of operators with formulas
  uint64_t handle_ = 0;
};

}  // namespace dslaunch
