// Controls the streams of a device from the host, for every kind of accelerator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace dslaunch {

// Returns this thread's current stream on `device`, which must not be the CPU.
c10::Stream CurrentStream(c10::Device device);

// Returns another stream of `device`, whose work runs in parallel with the work of the other
// streams.
c10::Stream OtherStream(c10::Device device);

// Makes the stream `later` wait for all work that is enqueued on `earlier` now. The host does not
// wait.
void OrderAfter(const c10::Stream& later, const c10::Stream& earlier);

// Prevents the allocator from reusing `memory` before `stream` has done the work that is enqueued
// on it when the memory is freed. Use it for memory that was allocated on another stream.
void KeepFor(const c10::DataPtr& memory, const c10::Stream& stream);

// Returns a copy in pinned memory of the host. The current stream makes the copy, so the copy must
// not be read before the stream has completed it.
at::Tensor CopyToPinned(const at::Tensor& on_device);

// Copies `from`, which may be on the host and may have another dtype, into `to`. If `from` is
// pinned, the host does not wait, and must not change `from` before the current stream has
// completed the copy. The host's memory is slower, so the device converts dtypes.
void CopyLater(const at::Tensor& to, const at::Tensor& from);

// Makes the host wait for all work that is enqueued on the current stream of `device` now. Does
// nothing for the CPU.
void AwaitStream(c10::Device device);

}  // namespace dslaunch
