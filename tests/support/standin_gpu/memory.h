// The memory of the stand-in device. Tensors have addresses that the host cannot touch; kernels
// find the same bytes elsewhere. Pinned memory of the host cannot be touched while a stream may use
// it. Who touches either ends the process with kExitTouched.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

#include "tests/support/standin_gpu/race_checker.h"

namespace dslaunch::standin {

inline constexpr uint64_t kRegionBytes = uint64_t{16} << 30;  // address space of a device

bool IsDevicePointer(const void* p);
bool IsPinnedPointer(const void* p);
c10::DeviceIndex DeviceOf(const void* p);  // -1: of none
// Where kernels find what is at `p`; `p` itself where it is neither on a device nor pinned.
void* KernelAddress(const void* p);

// Of the operation that StreamClock(stream) counts as the last one. A race ends the process with
// kExitRace, and says on stderr which two operations it is between. With DeviceMutex held.
void CheckTouches(int stream, const char* what, const std::vector<Touch>& touches);

// What the graph that is being recorded allocates stays where it is until the graph is gone.
class GraphMemory {
 public:
  GraphMemory() = default;
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

 private:
  friend struct MemoryState;
  std::vector<uintptr_t> blocks_;
};
// Null: no graph is being recorded from here on.
void AllocateFor(GraphMemory* graph);

c10::DeviceAllocator& TheDeviceAllocator();
c10::Allocator& ThePinnedAllocator();

}  // namespace dslaunch::standin
