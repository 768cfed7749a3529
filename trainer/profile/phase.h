// The parts of a training step, as they run.
#pragma once

#include <ATen/record_function.h>

#include "base/deadline.h"
#include "trainer/profile/breakdown.h"

namespace dslaunch {

// While it lives the thread is in the phase `name`, which a trace shows. Adds its time to
// `seconds`, which must outlive it.
class Phase {
 public:
  Phase(const char* name, double& seconds)
      : record_(at::RecordScope::USER_SCOPE), seconds_(seconds) {
    if (record_.isActive()) record_.before(name);
  }
  ~Phase() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  at::RecordFunction record_;
  double& seconds_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace dslaunch
