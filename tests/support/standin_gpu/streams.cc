#include "tests/support/standin_gpu/streams.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <random>
#include <thread>

#include "tests/support/standin_gpu/settings.h"

namespace dslaunch::standin {
namespace {

constexpr int kPoolStreams = 8;
constexpr std::chrono::seconds kExitPatience{5};

struct StreamState {
  Clock clock;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  uint64_t submitted = 0, done = 0;
  bool started = false;
};

struct State {
  std::recursive_mutex mutex;
  std::array<StreamState, kMaxStreams> streams;
  std::array<int, kMaxDevices> pool_used{}, own_used{};
  Clock host;
  std::function<void()> host_listener;
  std::exception_ptr error;
};

// The state is never destroyed, because its threads outlive the process's statics.
State& TheState() {
  static auto* const state = new State;
  return *state;
}
StreamState& StateOf(int stream) { return TheState().streams[static_cast<size_t>(stream)]; }

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> current_streams{};

c10::Stream MakeStream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device), id);
}

void RunStream(int number) {
  StreamState& stream = StateOf(number);
  std::mt19937_64 random(TheSettings().delay_seed * kMaxStreams + static_cast<uint64_t>(number));
  const int longest_us = TheSettings().delay_us;
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(stream.mutex);
      stream.changed.wait(lock, [&] { return !stream.queue.empty(); });
      work = std::move(stream.queue.front());
      stream.queue.pop_front();
    }
    if (longest_us > 0) usleep(static_cast<unsigned>(random() % static_cast<uint64_t>(longest_us)));
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "standin: a kernel in %s failed: %s\n", StreamName(number).c_str(),
                   error.what());
      const std::lock_guard lock(DeviceMutex());
      if (!TheState().error) TheState().error = std::current_exception();
    }
    work = nullptr;
    const std::lock_guard lock(stream.mutex);
    ++stream.done;
    stream.changed.notify_all();
  }
}

// Waits for the streams at exit, because their work may use the process's statics.
void DrainAtExit() {
  for (StreamState& stream : TheState().streams) {
    std::unique_lock lock(stream.mutex);
    stream.changed.wait_for(lock, kExitPatience, [&] { return stream.done == stream.submitted; });
  }
}

}  // namespace

std::recursive_mutex& DeviceMutex() { return TheState().mutex; }

int DeviceCount() { return TheSettings().devices; }

c10::DeviceIndex CurrentDevice() { return current_device; }
void SetCurrentDevice(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < DeviceCount(), "CUDA error: invalid device ordinal ",
              static_cast<int>(device), " of ", DeviceCount());
  current_device = device;
}
c10::Stream CurrentStream(c10::DeviceIndex device) {
  return MakeStream(device, current_streams[static_cast<size_t>(device)]);
}
void SetCurrentStream(const c10::Stream& stream) {
  current_streams[static_cast<size_t>(stream.device_index())] = stream.id();
}

c10::Stream DefaultStream(c10::DeviceIndex device) { return MakeStream(device, 0); }
c10::Stream PoolStream(c10::DeviceIndex device) {
  const std::lock_guard lock(DeviceMutex());
  int& used = TheState().pool_used[static_cast<size_t>(device)];
  return MakeStream(device, 1 + used++ % kPoolStreams);
}
c10::Stream NewStream(c10::DeviceIndex device) {
  const std::lock_guard lock(DeviceMutex());
  const int id = 1 + kPoolStreams + TheState().own_used[static_cast<size_t>(device)]++;
  TORCH_CHECK(id < kStreamsPerDevice, "standin: more than ", kStreamsPerDevice, " streams");
  return MakeStream(device, id);
}
int NumberOf(const c10::Stream& stream) {
  return stream.device_index() * kStreamsPerDevice + static_cast<int>(stream.id());
}
c10::Stream StreamOfNumber(int number) {
  return MakeStream(static_cast<c10::DeviceIndex>(number / kStreamsPerDevice),
                    number % kStreamsPerDevice);
}

void EventMark::Set() {
  const std::lock_guard lock(mutex_);
  set_ = true;
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}
void EventMark::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return set_; });
}
bool EventMark::IsSet() const {
  const std::lock_guard lock(mutex_);
  return set_;
}

void Submit(int number, std::function<void()> work) {
  [[maybe_unused]] static const int registered = std::atexit(&DrainAtExit);
  StreamState& stream = StateOf(number);
  const std::lock_guard lock(stream.mutex);
  if (!stream.started) {
    stream.started = true;
    std::thread([number] { RunStream(number); }).detach();
  }
  stream.queue.push_back(std::move(work));
  ++stream.submitted;
  stream.changed.notify_all();
}

std::shared_ptr<EventMark> RecordEvent(int stream) {
  const std::lock_guard lock(DeviceMutex());
  const auto mark = std::make_shared<EventMark>(StateOf(stream).clock);
  Submit(stream, [mark] { mark->Set(); });
  return mark;
}

void WaitForEvent(int stream, const std::shared_ptr<EventMark>& event) {
  const std::lock_guard lock(DeviceMutex());
  StateOf(stream).clock.Join(event->clock());
  Submit(stream, [event] { event->Wait(); });
}

bool IsIdle(int number) {
  StreamState& stream = StateOf(number);
  const std::lock_guard lock(stream.mutex);
  return stream.done == stream.submitted;
}

const Clock& TickStream(int stream) {
  const std::lock_guard lock(DeviceMutex());
  Clock& clock = StateOf(stream).clock;
  clock.Join(TheState().host);
  clock.Tick(stream);
  return clock;
}
const Clock& StreamClock(int stream) { return StateOf(stream).clock; }
const Clock& HostClock() { return TheState().host; }

void HostWaitedFor(const Clock& clock) {
  const std::lock_guard lock(DeviceMutex());
  TheState().host.Join(clock);
  if (TheState().host_listener) TheState().host_listener();
}
void SetHostListener(std::function<void()> listener) {
  const std::lock_guard lock(DeviceMutex());
  TheState().host_listener = std::move(listener);
}

void ThrowKernelError() {
  const std::lock_guard lock(DeviceMutex());
  if (TheState().error) std::rethrow_exception(TheState().error);
}

void DrainStream(int number) {
  StreamState& stream = StateOf(number);
  Clock clock;
  {
    const std::lock_guard lock(DeviceMutex());
    clock = stream.clock;
  }
  {
    std::unique_lock lock(stream.mutex);
    const uint64_t all = stream.submitted;
    stream.changed.wait(lock, [&] { return stream.done >= all; });
  }
  HostWaitedFor(clock);
}

}  // namespace dslaunch::standin
