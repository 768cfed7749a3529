// Measures how long work took on the device where it ran.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

// Times successive pieces of work, each from Begin to End: the thread's time on the CPU, or the
// time of the current stream on a device, which is known only later. A copy shares the measured
// pieces.
class TimeSpans {
 public:
  void Begin(c10::Device device);  // drops a piece that has not ended
  void End();                      // does nothing without a Begin
  // Returns the total of the ended pieces. Waits until the device has finished the last one.
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
