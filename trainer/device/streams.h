// Controls the streams of a device from the host, for every kind of accelerator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace dslaunch {

// Returns this thread's current stream on `device`, which must not be the CPU.
c10::Stream CurrentStream(c10::Device device);

// Returns another stream of `device`, whose work runs in parallel with the other streams.
c10::Stream OtherStream(c10::Device device);

// Makes the stream `later` wait for all work that `earlier` has been given so far. The host does
// not wait.
void OrderAfter(const c10::Stream& later, const c10::Stream& earlier);

// Prevents the allocator from reusing `memory` before `stream` has done the work that it has been
// given when the memory is freed. For memory that was allocated on another stream.
void KeepFor(const c10::DataPtr& memory, const c10::Stream& stream);

// Returns a copy in pinned memory of the host. The current stream makes the copy, so it must not be
// read before this stream is done.
at::Tensor CopyToPinned(const at::Tensor& on_device);

// Copies `from`, which may be on the host and may have another dtype, into `to`. If `from` is
// pinned, the host does not wait, and must not change `from` before the current stream is done. The
// device converts dtypes, because the host's memory is slower.
void CopyLater(const at::Tensor& to, const at::Tensor& from);

// Makes the host wait for all work that the current stream of `device` has been given so far. Does
// nothing for the CPU.
void AwaitStream(c10::Device device);

}  // namespace dslaunch
