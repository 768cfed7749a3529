// The cross entropy of a language model's logits, of which there are so many that each copy counts.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch {

// at::cross_entropy_loss in fp32, of logits [..., classes] and targets int64 [...], of which -100
// marks none. A scalar in fp32: the mean over the targets, or with at::Reduction::Sum their sum. Of
// 16-bit logits no fp32 copy is made; the backward pass computes what it needs again.
at::Tensor CrossEntropyOfLogits(const at::Tensor& logits, const at::Tensor& targets,
                                int64_t reduction = at::Reduction::Mean);

}  // namespace dslaunch
