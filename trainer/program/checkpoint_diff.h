// Implements dslaunch checkpoint diff.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// The largest differences between elements at the same place, as |a - b| and as |a - b| / max(|a|,
// |b|). Infinite where only one of two elements is nan or where they are different infinities. Two
// nans are equal.
struct LargestDifference {
  double absolute = 0;
  double relative = 0;
};

// Precondition: both have the same number of elements.
LargestDifference DifferenceOf(const at::Tensor& a, const at::Tensor& b);

// Compares two checkpoints of any programs, and prints the tensors that differ, with names, shapes,
// dtypes and largest differences; with `json` as a JSON object. The states of the optimizer and of
// ranks are compared if both have some. Returns whether something differs. Throws kBadInput for
// a checkpoint that is incomplete or cannot be read.
bool PrintDifferences(const std::string& a, const std::string& b, bool json);

}  // namespace dslaunch
