// Measures the durations of a training step's phases while they run.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "trainer/device/time_spans.h"
#include "trainer/profile/breakdown.h"

namespace dslaunch {

// The durations of a step's phases. A device may not have finished the step yet.
struct StepTimes {
  TimeSpans data, forward, backward, update, batch;

  // Returns the durations in seconds. Waits for the device.
  PhaseTimes Seconds() const {
    return {data.Seconds(), forward.Seconds(), backward.Seconds(), update.Seconds(),
            batch.Seconds()};
  }
};

// Marks this thread as being in the phase `name`, which a trace shows, while this object exists.
// Adds the phase's duration on `device` to `spans`, which must outlive this object.
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
      // The device has failed. A destructor must not throw, so the next wait for the device reports
      // the error.
    }
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  at::RecordFunction record_;
  TimeSpans& spans_;
};

}  // namespace dslaunch
