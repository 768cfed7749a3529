// Reductions of what several ranks have, always in the order of the ranks: the same bits whatever
// came first, and whichever rank does it.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace dslaunch {

// sum = parts[0] + parts[1] + ..., from the left, in fp32 for floating-point numbers of fewer bits.
// All are contiguous and of one size; `sum` may be of another floating dtype, and may be one of the
// parts: it is written when all have been read. Autograd sees nothing of it where it is off.
void AddUp(const std::vector<at::Tensor>& parts, const at::Tensor& sum);

// The same for SUM, MIN, MAX and PRODUCT, the last three in the parts' own dtype. Throws c10::Error
// for another `op`.
void Combine(const std::vector<at::Tensor>& parts, c10d::ReduceOp::RedOpType op,
             const at::Tensor& result);

// In which dtype Combine of the first parts, as the first part of the rest, gives the same bits as
// Combine of all of them.
at::ScalarType PartialType(at::ScalarType dtype, c10d::ReduceOp::RedOpType op);

}  // namespace dslaunch
