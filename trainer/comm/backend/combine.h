// Reduces the ranks' parts of a tensor. The order is always the order of the ranks, so the bits do
// not depend on the order of arrival or on the rank that reduces.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace dslaunch {

// Sets `sum` to parts[0] + parts[1] + ..., from the left; floating-point numbers with less
// precision are added up in fp32. All tensors are contiguous and of the same size. `sum` may have
// another floating-point dtype, and may be one of the parts, because each element is written after
// it was read from all parts. Call it without autograd.
void AddUp(const std::vector<at::Tensor>& parts, const at::Tensor& sum);

// Sets `result` to the parts combined by SUM (see AddUp), MIN, MAX or PRODUCT, the last three in
// the dtype of the parts. Throws c10::Error for another `op`.
void Combine(const std::vector<at::Tensor>& parts, c10d::ReduceOp::RedOpType op,
             const at::Tensor& result);

// Returns the dtype for a partial result of Combine over the first parts. With this dtype,
// combining the partial result with the remaining parts gives the same bits as combining all parts.
at::ScalarType PartialType(at::ScalarType dtype, c10d::ReduceOp::RedOpType op);

}  // namespace dslaunch
