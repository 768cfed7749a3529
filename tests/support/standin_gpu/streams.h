// The streams of the stand-in device: each is a thread that does what it is given, in order. Events
// are marks in them.
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

// What guards clocks, memory and recordings; taken before any other mutex. Recursive, since an
// operation may allocate and free.
std::recursive_mutex& DeviceMutex();

// FAKE_CUDA_DEVICES (2 by default), or fewer where CUDA_VISIBLE_DEVICES shows fewer.
int DeviceCount();

// Of the calling thread.
c10::DeviceIndex CurrentDevice();
void SetCurrentDevice(c10::DeviceIndex device);  // throws c10::Error where there is none such
c10::Stream CurrentStream(c10::DeviceIndex device);
void SetCurrentStream(const c10::Stream& stream);

c10::Stream DefaultStream(c10::DeviceIndex device);
c10::Stream PoolStream(c10::DeviceIndex device);  // in turn, so given several times
c10::Stream NewStream(c10::DeviceIndex device);   // given once
int NumberOf(const c10::Stream& stream);          // in clocks
c10::Stream StreamOfNumber(int number);

class EventMark {
 public:
  explicit EventMark(const Clock& clock) : clock_(clock) {}

  void Set();
  void Wait();
  bool IsSet() const;
  std::chrono::steady_clock::time_point time() const { return time_; }  // once it is set
  const Clock& clock() const { return clock_; }                         // what comes before it

 private:
  const Clock clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
  std::chrono::steady_clock::time_point time_;
};

// All below: with DeviceMutex held, or alone.

// Appends `work` to what the stream does. What it throws is thrown by the next wait, and by all
// that follow, as an error of a CUDA kernel is.
void Submit(int stream, std::function<void()> work);
std::shared_ptr<EventMark> RecordEvent(int stream);
void WaitForEvent(int stream, const std::shared_ptr<EventMark>& event);
bool IsIdle(int stream);
// Counts an operation in the stream that comes after all the host has waited for. Returns what is
// before it, itself included.
const Clock& TickStream(int stream);
const Clock& StreamClock(int stream);
const Clock& HostClock();  // one for all threads of the host
// The host has waited: what `clock` has is before all that it does from here on.
void HostWaitedFor(const Clock& clock);
// Is called by HostWaitedFor.
void SetHostListener(std::function<void()> listener);
void ThrowKernelError();

// Waits until the stream has done what it was given. Not with DeviceMutex held.
void DrainStream(int stream);

}  // namespace dslaunch::standin
