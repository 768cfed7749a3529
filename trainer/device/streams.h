// Operations of the host on the streams of a device, for every kind of accelerator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace dslaunch {

// Returns this thread's stream on `device`, which must not be the CPU.
c10::Stream CurrentStream(c10::Device device);

// Returns a stream of `device` for work in parallel with its other streams.
c10::Stream OtherStream(c10::Device device);

// Makes `later` wait for all work given to `earlier` so far. The host does not wait.
void OrderAfter(const c10::Stream& later, const c10::Stream& earlier);

// Prevents the allocator from reusing `memory`, once it is freed, until `stream` has done the work
// given to it by then. For memory that was allocated in another stream.
void KeepFor(const c10::DataPtr& memory, const c10::Stream& stream);

// Returns a copy in pinned memory of the host. The current stream makes the copy; read it only
// after that stream is done.
at::Tensor CopyToPinned(const at::Tensor& on_device);

// Copies `from`, which may be on the host and have another dtype, into `to`. If `from` is pinned,
// the host does not wait, and must not change it before the current stream is done. The device
// converts, because the host's memory is slower.
void CopyLater(const at::Tensor& to, const at::Tensor& from);

// Makes the host wait for all work given to the current stream of `device` so far. Does nothing for
// the CPU.
void AwaitStream(c10::Device device);

}  // namespace dslaunch
