// Wakes a thread of another process through shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace dslaunch {

// A bell in shared memory. One thread sleeps, and any thread may ring. Memory filled with zeros is
// a valid bell that has not been rung. To miss no ring, read Rings(), check whether there is work,
// and if not, call Sleep with the value.
class Doorbell {
 public:
  uint32_t Rings() const { return rings_.load(); }
  void Ring();
  // Waits for a ring. Returns at once if the bell was rung since `rings` was read. Returns false if
  // the bell was not rung within `timeout`.
  bool Sleep(uint32_t rings, std::chrono::milliseconds timeout);

 private:
  std::atomic<uint32_t> rings_;  // number of rings, used as a futex
  std::atomic<uint32_t> sleeps_;
};

}  // namespace dslaunch
