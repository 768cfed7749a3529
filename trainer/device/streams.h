// What the host says to the streams of a device, for every kind of accelerator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace dslaunch {

// The stream of this thread on `device`, which is not the CPU.
c10::Stream CurrentStream(c10::Device device);

// One of `device` for work beside what others of its streams do.
c10::Stream OtherStream(c10::Device device);

// Makes `later` wait for what `earlier` was given so far. The host does not wait.
void OrderAfter(const c10::Stream& later, const c10::Stream& earlier);

// Keeps `memory` of a device's allocator, once it is freed, until `stream` has done what it was
// given by then. For memory that was allocated in another stream.
void KeepFor(const c10::DataPtr& memory, const c10::Stream& stream);

// A copy in pinned memory of the host, which the current stream makes: to be read once that is
// done.
at::Tensor CopyToPinned(const at::Tensor& on_device);

// Copies `from`, which may lie in the host's memory and have another dtype, into `to`. Where `from`
// is pinned the host does not wait: it may read it, but must not change it before the current
// stream is done. Rounding is the device's then: the host's memory is the slower one.
void CopyLater(const at::Tensor& to, const at::Tensor& from);

// The host waits for what the current stream of `device` was given so far. Of the CPU: nothing.
void AwaitStream(c10::Device device);

}  // namespace dslaunch
