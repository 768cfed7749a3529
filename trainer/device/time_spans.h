// Measures how long work takes on the device where it runs.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

// Measures successive pieces of work, each from Begin to End. On the CPU, measures the time of the
// thread. On another device, measures the time of the current stream, which is known only later.
// Copies of this object share the pieces measured so far.
class TimeSpans {
 public:
  void Begin(c10::Device device);  // begins a piece; discards a piece that has not ended
  void End();                      // ends a piece; does nothing if no piece has begun
  // Returns the total time of the ended pieces. Waits until the device has finished them.
  double Seconds() const;

 private:
  using Mark = std::shared_ptr<c10::Event>;

  c10::Device device_ = c10::kCPU;
  bool open_ = false;
  Clock::time_point start_;
  double host_s_ = 0;
  Mark start_mark_;
  std::vector<std::pair<Mark, Mark>> marks_;
};

}  // namespace dslaunch
