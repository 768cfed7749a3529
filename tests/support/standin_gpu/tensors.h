// Tensors of the device as kernels see them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tests/support/standin_gpu/memory.h"

namespace dslaunch::standin {

bool IsOnDevice(const at::Tensor& tensor);
// Whether kernels find its memory elsewhere: on the device, or pinned.
bool IsOurs(const at::Tensor& tensor);
// A CPU tensor over the memory of `tensor`, for kernels; owns nothing. A tensor that is not ours is
// returned as it is.
at::Tensor KernelAlias(const at::Tensor& tensor);
// From the first to the last element. Nothing for a tensor that is not ours.
Touch TouchOf(const at::Tensor& tensor, bool write);
// A number in C++ code takes part in type promotion differently from a tensor.
void KeepWrappedNumber(const at::Tensor& from, const at::Tensor& to);
// Grows the storage where it must, as resize_ does.
void ResizeTensor(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);
std::vector<int64_t> ContiguousStrides(at::IntArrayRef sizes);

// In the threads of streams, nothing of the caller's autograd and autocast is to apply.
struct PlainDispatch {
  c10::impl::ForceDispatchKeyGuard guard{c10::default_included_set,
                                         c10::default_excluded_set |
                                             c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset};
};

}  // namespace dslaunch::standin
