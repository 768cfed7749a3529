// Records some steps of a training run with LibTorch's profiler (Kineto): writes a Chrome trace
// (for https://ui.perfetto.dev and chrome://tracing), a table, and the files for the job's report.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "trainer/config/recipe.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/profile/profile_result.h"

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace dslaunch {

// The state of the profiler in a step. The index of a step counts from 0 at the beginning of the
// run.
enum class ProfilePhase { kOff, kWarmUp, kActive };
constexpr ProfilePhase ProfilePhaseOf(const ProfileConfig& config, int64_t index) {
  const int64_t first = config.wait + config.warmup;
  if (index < config.wait || index >= first + config.active) return ProfilePhase::kOff;
  return index < first ? ProfilePhase::kWarmUp : ProfilePhase::kActive;
}

// Records the operators, memory and collectives of this rank. At most one object may exist per
// process, used by one thread. Calls must be in the order of the steps.
class StepProfiler {
 public:
  struct Options {
    ProfileConfig steps;
    bool table = false;        // true to print the table on rank 0
    std::string trace_folder;  // folder for rank_<rank>.json, the trace; no trace if empty
    std::string rank_dir;      // folder for profile.json and trace.json; no files if empty
    int rank = 0;
    int world_size = 1;
    // Returns the rank's device. Not called before the first step.
    std::function<c10::Device()> device;
    // Returns the backend of exchanges: "gloo", "nccl" or "shm". Called at the end of the recorded
    // steps.
    std::function<std::string()> backend;
    // Sets the memory in a result. Called at the end of the recorded steps.
    std::function<void(ProfileResult&)> add_memory;
  };
  // Creates the folder of the trace. Throws kIo if the folder cannot be created.
  explicit StepProfiler(Options options);

  void BeforeStep(int64_t index);
  void AfterStep(int64_t index);
  // Ends the recording, and prints the result on rank 0. Call this at the end of training, which
  // may be before the last step to record.
  void Finish();

 private:
  void Stop();
  ProfileResult Evaluate(const torch::autograd::profiler::ProfilerResult& recorded) const;
  void SaveTrace(torch::autograd::profiler::ProfilerResult& recorded) const;

  Options options_;
  std::optional<ActivationMeter::Pause> no_meter_;  // pauses the meter while recording
  std::optional<at::RecordFunction> step_;          // scope of the step that is being recorded
  Clock::time_point start_;
  int64_t steps_ = 0;  // number of recorded steps
  bool prepared_ = false;
  bool recording_ = false;
  std::optional<ProfileResult> result_;
};

}  // namespace dslaunch
