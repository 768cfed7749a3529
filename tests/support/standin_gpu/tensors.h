// The device's tensors as kernels see them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tests/support/standin_gpu/memory.h"

namespace dslaunch::standin {

bool IsOnDevice(const at::Tensor& tensor);
// Whether kernels use another address for its memory: on the device, or pinned.
bool IsOurs(const at::Tensor& tensor);
// Returns a CPU tensor over the memory of `tensor`, for kernels; it owns nothing. A tensor that is
// not ours is returned unchanged.
at::Tensor KernelAlias(const at::Tensor& tensor);
// Covers the first to the last element. Empty for a tensor that is not ours.
Touch TouchOf(const at::Tensor& tensor, bool write);
// Copies the mark of a number in C++ code, which takes part in type promotion differently from a
// tensor.
void KeepWrappedNumber(const at::Tensor& from, const at::Tensor& to);
// Grows the storage if needed, like resize_.
void ResizeTensor(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);
std::vector<int64_t> ContiguousStrides(at::IntArrayRef sizes);

// In the threads of streams, the caller's autograd and autocast must not apply.
struct PlainDispatch {
  c10::impl::ForceDispatchKeyGuard guard{c10::default_included_set,
                                         c10::default_excluded_set |
                                             c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset};
};

}  // namespace dslaunch::standin
