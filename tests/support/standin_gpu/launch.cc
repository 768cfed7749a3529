#include "tests/support/standin_gpu/launch.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "tests/support/standin_gpu/counts.h"
#include "tests/support/standin_gpu/settings.h"

namespace dslaunch::standin {
namespace {

Graph* recording = nullptr;  // guarded by DeviceMutex
thread_local bool enqueues = false;

}  // namespace

void Enqueue(const c10::Stream& stream, Launch launch) {
  enqueues = true;
  const std::lock_guard lock(DeviceMutex());
  ThrowKernelError();
  const int number = NumberOf(stream);
  if (TheSettings().trace) {
    std::fprintf(stderr, "standin: %s in %s\n", launch.name, StreamName(number).c_str());
  }
  if (recording != nullptr) {
    recording->launches_.push_back(std::move(launch));
    return;
  }
  CountLaunch(launch.name);
  TickStream(number);
  CheckTouches(number, launch.name, launch.touches);
  const uint64_t seed = launch.draw ? launch.draw() : 0;
  Submit(number, [kernel = std::move(launch.kernel), seed] {
    if (kernel) kernel(seed);
  });
}

std::shared_ptr<EventMark> MarkStream(const c10::Stream& stream) {
  if (!IsRecording()) return RecordEvent(NumberOf(stream));
  auto mark = std::make_shared<EventMark>(Clock());
  mark->Set();
  return mark;
}

void LetStreamWait(const c10::Stream& stream, const std::shared_ptr<EventMark>& event) {
  if (!IsRecording()) WaitForEvent(NumberOf(stream), event);
}

bool QueryEvent(const EventMark& event) {
  if (!event.IsSet()) return false;
  // A thread that has never enqueued an operation has no later launches to order, so its query
  // changes no clock.
  if (enqueues) HostWaitedFor(event.clock());
  return true;
}

void CheckMayWait(const char* why, bool hidden) {
  TORCH_CHECK(!IsRecording(), "CUDA error: operation not permitted when stream is capturing (", why,
              ")");
  CountWait(why, hidden);
}

void SynchronizeStream(const c10::Stream& stream, const char* why, bool hidden) {
  CheckMayWait(why, hidden);
  DrainStream(NumberOf(stream));
  ThrowKernelError();
}

void Graph::BeginRecording() {
  const std::lock_guard lock(DeviceMutex());
  TORCH_CHECK(recording == nullptr, "standin: two graphs are recorded at a time");
  recording = this;
  AllocateFor(&memory_);
}

void Graph::EndRecording() {
  const std::lock_guard lock(DeviceMutex());
  recording = nullptr;
  AllocateFor(nullptr);
}

void Graph::Replay(const c10::Stream& stream) {
  const std::lock_guard lock(DeviceMutex());
  Launch whole{.name = "a graph", .touches = {}, .kernel = {}};
  std::vector<std::pair<std::function<void(uint64_t)>, uint64_t>> kernels;
  for (const Launch& launch : launches_) {
    whole.touches.insert(whole.touches.end(), launch.touches.begin(), launch.touches.end());
    kernels.emplace_back(launch.kernel, launch.draw ? launch.draw() : 0);
    CountLaunch(launch.name);
  }
  // Merges equal touches of memory, because a graph has thousands of operations.
  std::ranges::sort(whole.touches, {}, [](const Touch& touch) {
    return std::tuple(touch.begin, touch.bytes, touch.write);
  });
  const auto rest = std::ranges::unique(whole.touches, [](const Touch& one, const Touch& other) {
    return one.begin == other.begin && one.bytes == other.bytes && one.write == other.write;
  });
  whole.touches.erase(rest.begin(), rest.end());
  whole.kernel = [kernels = std::move(kernels)](uint64_t) {
    for (const auto& [kernel, seed] : kernels) {
      if (kernel) kernel(seed);
    }
  };
  Enqueue(stream, std::move(whole));
}

bool IsRecording() {
  const std::lock_guard lock(DeviceMutex());
  return recording != nullptr;
}

}  // namespace dslaunch::standin
