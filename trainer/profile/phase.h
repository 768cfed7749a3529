// Times the phases of a training step as they run.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "trainer/device/time_spans.h"
#include "trainer/profile/breakdown.h"

namespace dslaunch {

// PhaseTimes of a step that a device may not have finished.
struct StepTimes {
  TimeSpans data, forward, backward, update, batch;

  PhaseTimes Seconds() const {  // Waits for the device.
    return {data.Seconds(), forward.Seconds(), backward.Seconds(), update.Seconds(),
            batch.Seconds()};
  }
};

// While it exists, the thread is in the phase `name`, which a trace shows. Adds its time on
// `device` to `spans`, which must outlive it.
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
      // The device has failed; the next wait for it reports the error.
    }
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  at::RecordFunction record_;
  TimeSpans& spans_;
};

}  // namespace dslaunch
