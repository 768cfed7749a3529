// What a message between two stages holds, and its bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "dslaunch/pipeline.h"

namespace dslaunch {

struct TensorLayout {
  at::ScalarType dtype = at::kFloat;
  bool requires_grad = false;
  std::vector<int64_t> shape;
  bool operator==(const TensorLayout&) const = default;
};
using MessageLayout = std::vector<TensorLayout>;

MessageLayout LayoutOf(const Tensors& tensors);
// Of the gradients for such tensors: one for each that requires one.
MessageLayout GradientsOf(const MessageLayout& layout);

// For another rank.
std::vector<int64_t> ToNumbers(const MessageLayout& layout);
MessageLayout LayoutFromNumbers(const int64_t* numbers);

int64_t PayloadBytes(const MessageLayout& layout);
// `bytes` is uint8 [PayloadBytes], and its memory aligned. Autograd sees nothing of it.
void Pack(const Tensors& tensors, const at::Tensor& bytes);
// Tensors in the memory of `bytes`, with requires_grad as in `layout`, as leaves.
Tensors Unpack(const MessageLayout& layout, const at::Tensor& bytes);

}  // namespace dslaunch
