// Defines the interface of metrics with which `dslaunch train` evaluates a model. To add your own
// metric in a plugin, see plugin.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dslaunch {

// A number that rates a model's outputs for all evaluation data, such as a top-3 accuracy. A metric
// is computed from sums, so its value does not depend on the number of ranks or the batch size. A
// mean needs the total and the count; an F1 score needs the numbers of true and false answers.
class Metric {
 public:
  virtual ~Metric() = default;

  // Returns this batch's contribution to the sums, always the same number of values. `output` is
  // the model's output and `targets` are from the data set, both on the model's device. Called
  // without gradients, on one thread, on the ranks that compute the output. The caller adds up the
  // sums of these ranks.
  virtual std::vector<double> Sums(const at::Tensor& output, const at::Tensor& targets) const = 0;

  // Returns the metric, given the sums over all batches of all ranks. Called on every rank.
  virtual double Value(const std::vector<double>& sums) const = 0;
};

}  // namespace dslaunch
