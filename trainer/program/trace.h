// A Chrome trace of a few steps (https://ui.perfetto.dev and chrome://tracing show it).
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch {

// What a step of this run, counted from 0, is for the recorder: the first is left alone, in the
// second it warms up, the next three are recorded.
enum class TracePhase { kOff, kWarmUp, kFirst, kMiddle, kLast };
constexpr TracePhase TracePhaseOf(int64_t index) {
  switch (index) {
    case 1:
      return TracePhase::kWarmUp;
    case 2:
      return TracePhase::kFirst;
    case 3:
      return TracePhase::kMiddle;
    case 4:
      return TracePhase::kLast;
    default:
      return TracePhase::kOff;
  }
}

// Operators and collectives of this rank and its threads. One per process. Calls are in order of
// the steps.
class StepTrace {
 public:
  // Makes `folder`, in which the trace becomes rank_<rank>.json. Throws kIo.
  StepTrace(const std::string& folder, int rank);

  void BeforeStep(int64_t index);
  void AfterStep(int64_t index);
  // Training has ended, maybe before the last step to record. Says on rank 0 what there is.
  void Finish();

 private:
  void Save();

  std::string file_;
  int rank_;
  bool recording_ = false;
  bool saved_ = false;
};

}  // namespace dslaunch
