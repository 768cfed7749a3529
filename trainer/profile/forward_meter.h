// Counts the work of a model's forward pass as it runs: floating point operations, and which module
// each operator belongs to.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/profile/module_table.h"

namespace dslaunch {

// While it lives it sees the operators that the thread runs which made it, but for those of
// backward passes, recomputed ones among them. One at a time. Costs about a microsecond for each.
class ForwardMeter {
 public:
  // `module` must outlive this, and keep its parameters.
  explicit ForwardMeter(const torch::nn::Module& module);
  ~ForwardMeter();
  ForwardMeter(const ForwardMeter&) = delete;
  ForwardMeter& operator=(const ForwardMeter&) = delete;

  double flops() const;
  // The outermost operators, in their order.
  const std::vector<ForwardOp>& operators() const { return operators_; }

 private:
  struct Hooks;

  // By where a parameter lies: its storage, and its place in it.
  std::map<std::pair<const void*, int64_t>, std::string> module_of_;
  std::vector<ForwardOp> operators_;
  int depth_ = 0;          // of operators inside of operators
  int formula_depth_ = 0;  // of those that have formulas
  uint64_t handle_ = 0;
};

}  // namespace dslaunch
