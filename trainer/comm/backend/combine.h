// Reductions over ranks, always in the order of the ranks: the bits do not depend on the order of
// arrival or on the rank that reduces.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace dslaunch {

// Sets `sum` to parts[0] + parts[1] + ..., from the left, in fp32 for floating-point numbers with
// fewer bits. All are contiguous and of one size; `sum` may have another floating dtype, and may be
// one of the parts, because it is written after all were read. Call it without autograd.
void AddUp(const std::vector<at::Tensor>& parts, const at::Tensor& sum);

// Combines the parts by SUM (see AddUp), MIN, MAX or PRODUCT, the last three in the parts' own
// dtype. Throws c10::Error for another `op`.
void Combine(const std::vector<at::Tensor>& parts, c10d::ReduceOp::RedOpType op,
             const at::Tensor& result);

// Returns the dtype in which the result of Combine for the first parts must be kept, so that
// Combine of it with the rest gives the same bits as Combine of all parts.
at::ScalarType PartialType(at::ScalarType dtype, c10d::ReduceOp::RedOpType op);

}  // namespace dslaunch
