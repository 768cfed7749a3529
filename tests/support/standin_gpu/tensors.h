// Converts the device's tensors for use by kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tests/support/standin_gpu/memory.h"

namespace dslaunch::standin {

bool IsOnDevice(const at::Tensor& tensor);
// Returns whether the tensor's memory is on the device or pinned. Kernels use another address for
// such memory.
bool IsOurs(const at::Tensor& tensor);
// Returns a CPU tensor over the memory of `tensor`, for kernels; it does not own the memory.
// Returns `tensor` unchanged if IsOurs(tensor) is false.
at::Tensor KernelAlias(const at::Tensor& tensor);
// Returns the access of an operation to the tensor: the memory from its first to its last element,
// and whether the operation writes. Empty if IsOurs(tensor) is false or the tensor has no elements.
Touch TouchOf(const at::Tensor& tensor, bool write);
// Copies the mark of a tensor that wraps a C++ number, because such a tensor takes part in type
// promotion differently.
void KeepWrappedNumber(const at::Tensor& from, const at::Tensor& to);
// Resizes a tensor and grows its storage if needed, like resize_.
void ResizeTensor(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);
std::vector<int64_t> ContiguousStrides(at::IntArrayRef sizes);

// Disables autograd and autocast in the threads of streams, where the caller's settings must not
// apply.
struct PlainDispatch {
  c10::impl::ForceDispatchKeyGuard guard{c10::default_included_set,
                                         c10::default_excluded_set |
                                             c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset};
};

}  // namespace dslaunch::standin
