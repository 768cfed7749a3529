// The interface of metrics by which `dslaunch train` judges a model. One of your own, in a plugin:
// plugin.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dslaunch {

// One number about a model's answers to all evaluation data, such as a top-3 accuracy. It is made
// of sums, so that it is the same for any number of ranks and any batch size: of a mean they are
// the total and the count, of an F1 score the numbers of true and false answers.
class Metric {
 public:
  virtual ~Metric() = default;

  // This batch's part of the sums: always as many numbers. `output` is what the model returned,
  // `targets` are the data set's, both on the model's device. Called without gradients, in one
  // thread, on the ranks that compute the output; their sums are added up.
  virtual std::vector<double> Sums(const at::Tensor& output, const at::Tensor& targets) const = 0;

  // The metric, of the sums over all batches of all ranks. Called on every rank.
  virtual double Value(const std::vector<double>& sums) const = 0;
};

}  // namespace dslaunch
