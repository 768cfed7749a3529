// Implements the command `dslaunch checkpoint diff`.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

// The largest differences between elements a and b with the same index: |a - b|, and |a - b| /
// max(|a|, |b|). They are infinite if only one of two elements is NaN, or if two elements are
// different infinities. Two NaNs are equal.
struct LargestDifference {
  double absolute = 0;
  double relative = 0;
};

// Compares two tensors element by element. Precondition: `a` and `b` have the same number of
// elements.
LargestDifference DifferenceOf(const at::Tensor& a, const at::Tensor& b);

// Compares two checkpoints of any programs. Prints the tensors that differ, with names, shapes,
// dtypes and largest differences; with `json`, prints them as a JSON object. Optimizer state and
// ranks' states are compared if both checkpoints have them. Returns whether anything differs.
// Throws kBadInput for a checkpoint that is incomplete or cannot be read.
bool PrintDifferences(const std::string& a, const std::string& b, bool json);

}  // namespace dslaunch
