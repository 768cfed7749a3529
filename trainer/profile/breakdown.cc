#include "trainer/profile/breakdown.h"

#include "trainer/base/format.h"

namespace dslaunch {

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& other) {
  for (double PhaseTimes::*const phase :
       {&PhaseTimes::data, &PhaseTimes::forward, &PhaseTimes::backward, &PhaseTimes::update,
        &PhaseTimes::batch}) {
    this->*phase += other.*phase;
  }
  return *this;
}

std::string BreakdownLine(int64_t step, const PhaseTimes& times, double compute_s, double seconds,
                          int64_t steps) {
  const auto mean_ms = [steps](double sum) { return 1e3 * sum / static_cast<double>(steps); };
  std::string line =
      Format("step %lld: data %.1f ms, ", static_cast<long long>(step), mean_ms(times.data));
  if (times.batch > 0) {
    line += Format("batch %.1f ms", mean_ms(times.batch));
  } else {
    line += Format("forward %.1f ms, backward %.1f ms, update %.1f ms", mean_ms(times.forward),
                   mean_ms(times.backward), mean_ms(times.update));
  }
  if (compute_s > 0) line += Format("; passes without waiting %.1f ms", mean_ms(compute_s));
  return line + Format("; mean step %.1f ms", mean_ms(seconds));
}

}  // namespace dslaunch
