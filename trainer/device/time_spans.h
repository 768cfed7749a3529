// How long work took where it ran.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

// Of pieces of work that follow each other, each from Begin to End: on the CPU the time of the
// thread, on a device that of its current stream, which the host hears of later. A copy has the
// same spans.
class TimeSpans {
 public:
  void Begin(c10::Device device);  // forgets a piece that has not ended
  void End();                      // of nothing where no piece has begun
  // Of those that have ended. Waits for the device where it has not come to the last one's end.
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
