// Implements the streams of the stand-in device: each stream is a thread that runs its work in
// order. Events are marks in streams.
#pragma once

#include <c10/core/Stream.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tests/support/standin_gpu/race_checker.h"

namespace dslaunch::standin {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::CUDA;

// Returns the mutex that guards clocks, memory and recordings. It is locked before any other mutex.
// It is recursive, because an operation may allocate and free memory.
std::recursive_mutex& DeviceMutex();

// Returns FAKE_CUDA_DEVICES (2 by default), or fewer if CUDA_VISIBLE_DEVICES hides some.
int DeviceCount();

// Returns the calling thread's current device. Each thread has its own current device, and its own
// current stream of each device.
c10::DeviceIndex CurrentDevice();
// Sets the calling thread's current device. Throws c10::Error if `device` does not exist.
void SetCurrentDevice(c10::DeviceIndex device);
// Returns the calling thread's current stream of `device`.
c10::Stream CurrentStream(c10::DeviceIndex device);
void SetCurrentStream(const c10::Stream& stream);

c10::Stream DefaultStream(c10::DeviceIndex device);
// Returns the next stream of the device's pool, in turn, so the same stream may be returned again.
c10::Stream PoolStream(c10::DeviceIndex device);
// Returns a stream that no other call returns. Throws c10::Error if the device has no more streams.
c10::Stream NewStream(c10::DeviceIndex device);
// Returns the number of the stream among the streams of all devices, its index in a Clock.
int NumberOf(const c10::Stream& stream);
c10::Stream StreamOfNumber(int number);

class EventMark {
 public:
  explicit EventMark(const Clock& clock) : clock_(clock) {}

  void Set();
  void Wait();
  bool IsSet() const;
  // Returns when the event was set. Precondition: the event is set.
  std::chrono::steady_clock::time_point time() const { return time_; }
  const Clock& clock() const { return clock_; }  // operations that are ordered before the event

 private:
  const Clock clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
  std::chrono::steady_clock::time_point time_;
};

// Precondition of all functions below: DeviceMutex is held, or no other thread runs.

// Appends `work` to the stream. An exception of `work` is thrown by the next wait and by all later
// waits, like an error of a CUDA kernel.
void Submit(int stream, std::function<void()> work);
// Returns an event after the work that the stream has so far.
std::shared_ptr<EventMark> RecordEvent(int stream);
// Makes the stream's later work wait for the event.
void WaitForEvent(int stream, const std::shared_ptr<EventMark>& event);
// Returns whether the stream has done all its work.
bool IsIdle(int stream);
// Counts an operation in the stream that is ordered after everything that the host has waited for.
// Returns the operations ordered before the end of this operation, including this operation.
const Clock& TickStream(int stream);
const Clock& StreamClock(int stream);
const Clock& HostClock();  // shared by all threads of the host
// Records a wait of the host: the operations in `clock` are ordered before all later work of the
// host.
void HostWaitedFor(const Clock& clock);
// Sets the function that HostWaitedFor calls.
void SetHostListener(std::function<void()> listener);
void ThrowKernelError();

// Waits until the stream has done its work. Precondition: DeviceMutex is not held.
void DrainStream(int stream);

}  // namespace dslaunch::standin
