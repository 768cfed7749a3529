#include "tests/support/standin_gpu/tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>

#include "tests/support/standin_gpu/launch.h"

namespace dslaunch::standin {

bool IsOnDevice(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

bool IsOurs(const at::Tensor& tensor) {
  return IsOnDevice(tensor) ||
         (tensor.defined() && tensor.is_cpu() && IsPinnedPointer(tensor.const_data_ptr()));
}

at::Tensor KernelAlias(const at::Tensor& tensor) {
  if (!IsOurs(tensor)) return tensor;
  at::Tensor alias = at::from_blob(KernelAddress(tensor.const_data_ptr()), tensor.sizes(),
                                   tensor.strides(), tensor.options().device(c10::kCPU));
  KeepWrappedNumber(tensor, alias);
  return alias;
}

Touch TouchOf(const at::Tensor& tensor, bool write) {
  if (!IsOurs(tensor) || tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {tensor.const_data_ptr(), static_cast<size_t>(last + 1) * tensor.itemsize(), write};
}

void KeepWrappedNumber(const at::Tensor& from, const at::Tensor& to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
}

void ResizeTensor(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const size_t bytes = at::detail::computeStorageNbytes(
      sizes, strides, tensor.itemsize(), static_cast<size_t>(impl->storage_offset()));
  c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) {
    const c10::DeviceGuard guard(tensor.device());
    c10::DataPtr memory = TheDeviceAllocator().allocate(bytes);
    if (storage->nbytes() > 0) {
      TheDeviceAllocator().copy_data(memory.get(), storage->data(), storage->nbytes());
    }
    storage->set_data_ptr_noswap(std::move(memory));
    storage->set_nbytes(bytes);
  }
  impl->set_sizes_and_strides(sizes, strides);
}

std::vector<int64_t> ContiguousStrides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

}  // namespace dslaunch::standin
