// Wakes a thread of another process, through memory that both share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace dslaunch {

// One thread sleeps, any may ring. Zeros are a valid doorbell that has not been rung. To miss
// nothing: take `Rings()`, look whether there is anything to do, and if not Sleep with it.
class Doorbell {
 public:
  uint32_t Rings() const { return rings_.load(); }
  void Ring();
  // Returns at once where the bell was rung since `rings` was taken. False: nobody rang within
  // `timeout`.
  bool Sleep(uint32_t rings, std::chrono::milliseconds timeout);

 private:
  std::atomic<uint32_t> rings_;  // a futex
  std::atomic<uint32_t> sleeps_;
};

}  // namespace dslaunch
