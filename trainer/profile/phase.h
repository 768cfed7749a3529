// Measures the phases of a training step as they run.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "trainer/device/time_spans.h"
#include "trainer/profile/breakdown.h"

namespace dslaunch {

// The PhaseTimes of a step that a device may not have finished.
struct StepTimes {
  TimeSpans data, forward, backward, update, batch;

  PhaseTimes Seconds() const {  // waits for the device
    return {data.Seconds(), forward.Seconds(), backward.Seconds(), update.Seconds(),
            batch.Seconds()};
  }
};

// Marks the thread as being in the phase `name`, which a trace shows, as long as this object
// exists. Adds the phase's time on `device` to `spans`, which must outlive this object.
class Phase {
 public:
  Phase(const char* name, TimeSpans& spans, c10::Device device)
      : record_(at::RecordScope::USER_SCOPE), spans_(spans) {
    if (record_.isActive()) record_.before(name);
    spans_.Begin(device);
  }
  ~Phase() {
    try {
      spans_.End();
    } catch (const c10::Error&) {
      // The device has failed. The next wait for the device reports the error.
    }
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  at::RecordFunction record_;
  TimeSpans& spans_;
};

}  // namespace dslaunch
