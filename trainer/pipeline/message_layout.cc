#include "trainer/pipeline/message_layout.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace dslaunch {
namespace {

constexpr int64_t kAlignment = 64;  // alignment in bytes, as in LibTorch's allocator

int64_t Bytes(const TensorLayout& layout) {
  return c10::multiply_integers(layout.shape) *
         static_cast<int64_t>(c10::elementSize(layout.dtype));
}

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns the tensors of `layout`, which follow one another in `bytes`.
Tensors Places(const MessageLayout& layout, const at::Tensor& bytes) {
  // Autograd would otherwise treat the tensors as views of one tensor and refuse to change a tensor
  // in place.
  const at::AutoDispatchBelowADInplaceOrView no_views;
  Tensors places;
  int64_t offset = 0;
  for (const TensorLayout& tensor : layout) {
    places.push_back(bytes.narrow(0, offset, Bytes(tensor)).view(tensor.dtype).view(tensor.shape));
    offset += Aligned(Bytes(tensor));
  }
  return places;
}

}  // namespace

MessageLayout LayoutOf(const Tensors& tensors) {
  MessageLayout layout;
  for (const at::Tensor& tensor : tensors) {
    layout.push_back({tensor.scalar_type(), tensor.requires_grad(), tensor.sizes().vec()});
  }
  return layout;
}

MessageLayout GradientsOf(const MessageLayout& layout) {
  MessageLayout gradients;
  for (const TensorLayout& tensor : layout) {
    if (tensor.requires_grad) gradients.push_back({tensor.dtype, false, tensor.shape});
  }
  return gradients;
}

std::vector<int64_t> ToNumbers(const MessageLayout& layout) {
  std::vector<int64_t> numbers = {static_cast<int64_t>(layout.size())};
  for (const TensorLayout& tensor : layout) {
    numbers.push_back(static_cast<int64_t>(tensor.dtype));
    numbers.push_back(tensor.requires_grad ? 1 : 0);
    numbers.push_back(static_cast<int64_t>(tensor.shape.size()));
    numbers.insert(numbers.end(), tensor.shape.begin(), tensor.shape.end());
  }
  return numbers;
}

MessageLayout LayoutFromNumbers(const int64_t* numbers) {
  MessageLayout layout(static_cast<size_t>(*numbers++));
  for (TensorLayout& tensor : layout) {
    tensor.dtype = static_cast<at::ScalarType>(*numbers++);
    tensor.requires_grad = *numbers++ != 0;
    const int64_t dimensions = *numbers++;
    tensor.shape.assign(numbers, numbers + dimensions);
    numbers += dimensions;
  }
  return layout;
}

int64_t PayloadBytes(const MessageLayout& layout) {
  int64_t bytes = 0;
  for (const TensorLayout& tensor : layout) bytes += Aligned(Bytes(tensor));
  return bytes;
}

void Pack(const Tensors& tensors, const at::Tensor& bytes) {
  const at::NoGradGuard no_grad;
  const Tensors places = Places(LayoutOf(tensors), bytes);
  for (size_t i = 0; i < tensors.size(); ++i) places[i].copy_(tensors[i]);
}

Tensors Unpack(const MessageLayout& layout, const at::Tensor& bytes) {
  Tensors tensors = Places(layout, bytes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].set_requires_grad(layout[i].requires_grad);
  }
  return tensors;
}

}  // namespace dslaunch
