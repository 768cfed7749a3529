// Records some steps of a training run with LibTorch's profiler (Kineto): a Chrome trace
// (https://ui.perfetto.dev and chrome://tracing show it), a table, and the files of the job's
// report.
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

// What a step of this run, counted from 0, is for the profiler.
enum class ProfilePhase { kOff, kWarmUp, kActive };
constexpr ProfilePhase ProfilePhaseOf(const ProfileConfig& config, int64_t index) {
  const int64_t first = config.wait + config.warmup;
  if (index < config.wait || index >= first + config.active) return ProfilePhase::kOff;
  return index < first ? ProfilePhase::kWarmUp : ProfilePhase::kActive;
}

// Operators, memory and collectives of this rank. One per process; one thread. Calls are in order
// of the steps.
class StepProfiler {
 public:
  struct Options {
    ProfileConfig steps;
    bool table = false;        // rank 0 prints it
    std::string trace_folder;  // in which the trace becomes rank_<rank>.json; empty: none
    std::string rank_dir;      // for profile.json and trace.json; empty: none
    int rank = 0;
    int world_size = 1;
    // On which the rank computes; called from the first step on.
    std::function<c10::Device()> device;
    // Both called at the end of the recorded steps. By what ranks exchange: "gloo", "nccl", "shm".
    std::function<std::string()> backend;
    // Gives the memory of a result.
    std::function<void(ProfileResult&)> add_memory;
  };
  // Makes the trace's folder. Throws kIo.
  explicit StepProfiler(Options options);

  void BeforeStep(int64_t index);
  void AfterStep(int64_t index);
  // Call it at the end of training, which may come before the last step to record. Rank 0 prints
  // the result.
  void Finish();

 private:
  void Stop();
  ProfileResult Evaluate(const torch::autograd::profiler::ProfilerResult& recorded) const;
  void SaveTrace(torch::autograd::profiler::ProfilerResult& recorded) const;

  Options options_;
  std::optional<ActivationMeter::Pause> no_meter_;  // while it records
  std::optional<at::RecordFunction> step_;          // of the step that is recorded
  Clock::time_point start_;
  int64_t steps_ = 0;  // recorded
  bool prepared_ = false;
  bool recording_ = false;
  std::optional<ProfileResult> result_;
};

}  // namespace dslaunch
