// Wakes a thread of another process through shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace dslaunch {

// One thread sleeps, any thread may ring. Zeros are a valid doorbell that has not been rung. To
// miss nothing, read Rings(), check whether there is anything to do, and if not call Sleep with the
// value.
class Doorbell {
 public:
  uint32_t Rings() const { return rings_.load(); }
  void Ring();
  // Returns at once if the bell was rung since `rings` was read. Returns false if it was not rung
  // within `timeout`.
  bool Sleep(uint32_t rings, std::chrono::milliseconds timeout);

 private:
  std::atomic<uint32_t> rings_;  // a futex
  std::atomic<uint32_t> sleeps_;
};

}  // namespace dslaunch
