// Manages the memory of the stand-in device. Tensors have addresses that the host cannot access;
// kernels access the same bytes at other addresses. The host cannot access pinned memory while a
// stream may use it. A forbidden access ends the process with kExitTouched.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

#include "tests/support/standin_gpu/race_checker.h"

namespace dslaunch::standin {

inline constexpr uint64_t kRegionBytes = uint64_t{16} << 30;  // address space per device

bool IsDevicePointer(const void* p);
bool IsPinnedPointer(const void* p);
// Returns the device on which `p` is; -1 if `p` is not on a device.
c10::DeviceIndex DeviceOf(const void* p);
// Returns the address of `p` for kernels; `p` itself if `p` is neither on a device nor pinned.
void* KernelAddress(const void* p);

// Checks the accesses of the last operation that StreamClock(stream) counts. A race ends the
// process with kExitRace and names both operations on stderr. Precondition: DeviceMutex is held.
void CheckTouches(int stream, const char* what, const std::vector<Touch>& touches);

// Owns the memory that a recorded graph allocates: it is not reused until the graph is destroyed.
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
// Assigns later allocations to `graph`, until the next call; null assigns them to no graph.
void AllocateFor(GraphMemory* graph);

c10::DeviceAllocator& TheDeviceAllocator();
c10::Allocator& ThePinnedAllocator();

}  // namespace dslaunch::standin
