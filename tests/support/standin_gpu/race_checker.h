// Decides by vector clocks which accesses to memory are ordered. The checker has no side effects,
// and checks operations when they are enqueued. So its results do not depend on the timing of the
// streams' threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::standin {

inline constexpr int kMaxDevices = 8;
inline constexpr int kStreamsPerDevice = 64;
inline constexpr int kMaxStreams = kMaxDevices * kStreamsPerDevice;

// Counts, for each stream, the operations that are ordered before some point.
class Clock {
 public:
  uint32_t operator[](int stream) const { return counts_[static_cast<size_t>(stream)]; }
  // Counts one more operation of the stream and returns its number, from 1.
  uint32_t Tick(int stream) { return ++counts_[static_cast<size_t>(stream)]; }
  // Also counts all operations that `other` counts.
  void Join(const Clock& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] = std::max(counts_[i], other.counts_[i]);
  }

 private:
  std::array<uint32_t, kMaxStreams> counts_{};
};

// A range of memory that an operation reads or writes.
struct Touch {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool write = false;
};

struct Access {
  uintptr_t begin = 0, end = 0;
  bool write = false;
  int stream = 0;
  uint32_t count = 0;  // number of the operation in its stream, from 1
  std::string what;    // name of the operation, such as "aten::mul"

  bool IsBefore(const Clock& clock) const { return clock[stream] >= count; }
};

// Stores the accesses to one block of memory after which later accesses must be ordered.
class AccessLog {
 public:
  // Adds `access` of an operation that is ordered after all operations in `before`. Returns the
  // earlier accesses that conflict with `access`: at least one of the two writes, and the two may
  // run at the same time.
  std::vector<Access> Add(const Access& access, const Clock& before);
  const std::vector<Access>& accesses() const { return accesses_; }
  void Clear() { accesses_.clear(); }

 private:
  std::vector<Access> accesses_;
};

// Returns a name such as "stream 2 of device 1".
std::string StreamName(int stream);
// Returns a message that describes the race between `later` and `earlier`.
std::string DescribeRace(const Access& later, const Access& earlier);

}  // namespace dslaunch::standin
