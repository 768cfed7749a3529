// Implements the interfaces that LibTorch requires of a device type: guards with streams and
// events, and CUDA's hooks.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <memory>
#include <mutex>

#include "tests/support/standin_gpu/generator.h"
#include "tests/support/standin_gpu/launch.h"
#include "tests/support/standin_gpu/memory.h"
#include "tests/support/standin_gpu/settings.h"
#include "tests/support/standin_gpu/streams.h"

namespace dslaunch::standin {
namespace {

c10::DeviceIndex IndexOf(c10::Device device) {
  return device.index() < 0 ? CurrentDevice() : device.index();
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device getDevice() const override { return c10::Device(kDeviceType, CurrentDevice()); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == kDeviceType, "not a GPU: ", device);
    SetCurrentDevice(device.index());
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device former = getDevice();
    setDevice(device);
    return former;
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    SetCurrentDevice(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }

  c10::Stream getStream(c10::Device device) const override {
    return CurrentStream(IndexOf(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return DefaultStream(IndexOf(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return PoolStream(IndexOf(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return PoolStream(IndexOf(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream former = CurrentStream(stream.device_index());
    SetCurrentStream(stream);
    return former;
  }
  bool queryStream(const c10::Stream& stream) const override {
    const std::lock_guard lock(DeviceMutex());
    const Clock clock = StreamClock(NumberOf(stream));
    if (!IsIdle(NumberOf(stream))) return false;
    HostWaitedFor(clock);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    SynchronizeStream(stream, "synchronize a stream", /*hidden=*/false);
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    const int first = NumberOf(DefaultStream(device < 0 ? CurrentDevice() : device));
    CheckMayWait("synchronize the device", /*hidden=*/false);
    for (int i = 0; i < kStreamsPerDevice; ++i) DrainStream(first + i);
    ThrowKernelError();
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    Get(*event) = MarkStream(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (IsRecorded(event)) LetStreamWait(stream, Get(event));
  }
  bool queryEvent(void* event) const override {
    return !IsRecorded(event) || QueryEvent(*Get(event));
  }
  void synchronizeEvent(void* event) const override {
    if (!IsRecorded(event) || TheSettings().ignored == "synchronize") return;
    CheckMayWait("synchronize an event", /*hidden=*/false);
    Get(event)->Wait();
    HostWaitedFor(Get(event)->clock());
    ThrowKernelError();
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    TORCH_CHECK(
        IsRecorded(first) && IsRecorded(second) && Get(first)->IsSet() && Get(second)->IsSet(),
        "Both events must be recorded and completed");
    const auto between = Get(second)->time() - Get(first)->time();
    return std::chrono::duration<double, std::milli>(between).count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    TheDeviceAllocator().recordStream(data, stream);
  }

 private:
  using Event = std::shared_ptr<EventMark>;

  static Event& Get(void* event) { return *static_cast<Event*>(event); }
  static bool IsRecorded(void* event) { return event != nullptr && Get(event) != nullptr; }
};

[[maybe_unused]] const bool interfaces_registered = [] {
  c10::SetAllocator(kDeviceType, &TheDeviceAllocator(), /*priority=*/1);
  c10::impl::registerDeviceGuard(kDeviceType, new Guard);
  return true;
}();

}  // namespace

class Hooks final : public at::CUDAHooksInterface {
 public:
  explicit Hooks(at::CUDAHooksArgs) {}

  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return DeviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return DeviceCount(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }
  c10::DeviceIndex current_device() const override { return CurrentDevice(); }
  c10::DeviceIndex getCurrentDevice() const override { return CurrentDevice(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { SetCurrentDevice(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex former = CurrentDevice();
    SetCurrentDevice(device);
    return former;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  void deviceSynchronize(c10::DeviceIndex device) const override {
    Guard().synchronizeDevice(device);
  }
  bool isPinnedPtr(const void* p) const override { return IsPinnedPointer(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &ThePinnedAllocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return &TheDeviceAllocator(); }
  c10::Device getDeviceFromPtr(void* p) const override {
    TORCH_CHECK(IsDevicePointer(p), "not a pointer to memory of the device");
    return c10::Device(kDeviceType, DeviceOf(p));
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return DefaultGenerator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return NewGenerator(device);
  }
};

}  // namespace dslaunch::standin

namespace at {
using StandinHooks = dslaunch::standin::Hooks;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", StandinHooks)
}  // namespace at
