// Computes the cross entropy of a language model's logits without copying all logits, which are
// very large.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/base/no_target.h"

namespace dslaunch {

// Returns at::cross_entropy_loss in fp32 as a scalar: the mean over the targets, or their sum with
// at::Reduction::Sum. Shapes: logits [..., classes], targets int64 [...]; target -100 is ignored.
// Makes no fp32 copy of all 16-bit logits; the backward pass recomputes the probabilities.
at::Tensor CrossEntropyOfLogits(const at::Tensor& logits, const at::Tensor& targets,
                                int64_t reduction = at::Reduction::Mean);

}  // namespace dslaunch
