// Measures whether a thread had to wait for a processor during another measurement.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/os/proc_text.h"

namespace dslaunch {

// Returns how long the calling thread has waited for a processor since it began, in nanoseconds; 0
// if the kernel does not count this time.
inline uint64_t RunDelayNs() {
  const std::string text = ReadWhole("/proc/thread-self/schedstat").value_or("");
  std::string_view rest = text;
  (void)TakeNumber(rest);
  return TakeNumber(rest);
}

// Returns `delay_ns` divided by `elapsed`, in thousandths.
inline uint32_t StarvedPermille(uint64_t delay_ns, Clock::duration elapsed) {
  const auto ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  return ns == 0 ? 0 : static_cast<uint32_t>(std::min<uint64_t>(1000, delay_ns * 1000 / ns));
}

// Measures how long the calling thread waits for a processor, from the construction of this object.
class StarvationMeter {
 public:
  uint32_t Permille() const {
    return StarvedPermille(RunDelayNs() - delay_ns_, Clock::now() - begin_);
  }

 private:
  uint64_t delay_ns_ = RunDelayNs();
  Clock::time_point begin_ = Clock::now();
};

}  // namespace dslaunch
