#include "trainer/device/streams.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace dslaunch {

c10::Stream CurrentStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream OtherStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

void OrderAfter(const c10::Stream& later, const c10::Stream& earlier) {
  if (later == earlier) return;
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

void KeepFor(const c10::DataPtr& memory, const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(memory, stream);
}

at::Tensor CopyToPinned(const at::Tensor& on_device) {
  at::Tensor copy =
      at::empty(on_device.sizes(), on_device.options().device(at::kCPU).pinned_memory(true));
  copy.copy_(on_device, /*non_blocking=*/true);
  return copy;
}

void CopyLater(const at::Tensor& to, const at::Tensor& from) {
  const bool is_upload = from.is_cpu() && !to.is_cpu() && from.is_pinned();
  if (!is_upload || from.scalar_type() == to.scalar_type()) {
    to.copy_(from, /*non_blocking=*/is_upload);
    return;
  }
  const at::Tensor arrived = at::empty(from.sizes(), from.options().device(to.device()));
  arrived.copy_(from, /*non_blocking=*/true);
  to.copy_(arrived);
}

void AwaitStream(c10::Device device) {
  if (!device.is_cpu()) CurrentStream(device).synchronize();
}

}  // namespace dslaunch
