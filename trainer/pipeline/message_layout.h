// The tensors of a message between two stages, and their bytes.
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
// Returns the layout of the gradients of tensors with that layout: one for each tensor that
// requires a gradient.
MessageLayout GradientsOf(const MessageLayout& layout);

// The layout as numbers that can be sent to another rank.
std::vector<int64_t> ToNumbers(const MessageLayout& layout);
MessageLayout LayoutFromNumbers(const int64_t* numbers);

int64_t PayloadBytes(const MessageLayout& layout);
// Copies the tensors to `bytes`, which is uint8 [PayloadBytes] in aligned memory. Autograd does not
// record the copy.
void Pack(const Tensors& tensors, const at::Tensor& bytes);
// Returns the tensors of `layout` in the memory of `bytes`, as leaves.
Tensors Unpack(const MessageLayout& layout, const at::Tensor& bytes);

}  // namespace dslaunch
