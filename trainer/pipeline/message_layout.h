// Describes the tensors of a message between two stages. Converts the tensors to bytes and back.
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
// Returns the layout of the gradients of tensors with the layout `layout`: one gradient for each
// tensor that requires a gradient.
MessageLayout GradientsOf(const MessageLayout& layout);

// Returns a layout as numbers, which can be sent to another rank.
std::vector<int64_t> ToNumbers(const MessageLayout& layout);
// Returns the layout from which ToNumbers made `numbers`.
MessageLayout LayoutFromNumbers(const int64_t* numbers);

int64_t PayloadBytes(const MessageLayout& layout);
// Copies the tensors to `bytes`, which is uint8 [PayloadBytes] in aligned memory. Autograd does not
// record the copy.
void Pack(const Tensors& tensors, const at::Tensor& bytes);
// Returns the tensors of `layout` as leaves of autograd that share the memory of `bytes`.
Tensors Unpack(const MessageLayout& layout, const at::Tensor& bytes);

}  // namespace dslaunch
