// Handles the tasks of a training program besides training: exits with the right code and a
// one-line error message, stops on request, and reports progress to the launcher.
//
//   int main() {
//     return dslaunch::Main([] {
//       const auto group = dslaunch::InitProcessGroup();
//       dslaunch::Reporter reporter;
//       for (int64_t step = 1; step <= kSteps && !dslaunch::StopRequested(group); ++step) {
//         const double loss = Train(group);
//         reporter.Step({.step = step, .total_steps = kSteps, .loss = loss});
//       }
//       Save(group);
//     });
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Runs fn and returns the exit code for main() to return:
//   0   fn returned
//   85  fn returned after StopRequested returned true, or threw HostsUpdatedInterrupt
//       (horovod_elastic.h): for the launcher, the job has saved its state and is to be started
//       again, which is not a failure
//   1   fn threw; for a TrainError its exit code. The message goes to stderr as one line,
//       "PROGRAM: rank 3: MESSAGE", without LibTorch's backtrace.
int Main(const std::function<void()>& fn);

// Returns whether any rank of the group was sent SIGINT or SIGTERM, for example by `dslaunch stop`,
// Ctrl-C or a time limit. Collective: all ranks get the same answer at the same call, so they stop
// at the same step. After the first call these signals no longer end the process. Save and return
// soon, because SIGKILL follows after --grace.
bool StopRequested(const ProcessGroup& group);

// Reports progress to the launcher, which shows it and includes results in --json. Never blocks or
// fails; does nothing without a launcher. At most one object per process. Not thread-safe.
class Reporter {
 public:
  struct Progress {
    int64_t step = 0;         // number of completed steps, from 1
    int64_t total_steps = 0;  // planned number of steps; 0 if unknown
    std::optional<double> loss = {};
    // Number of samples per second, summed over all ranks.
    std::optional<double> samples_per_s = {};
    // Number of tokens per second, summed over all ranks. Shown in place of samples_per_s.
    std::optional<double> tokens_per_s = {};
  };

  Reporter();
  ~Reporter();
  Reporter(Reporter&&) noexcept;
  Reporter& operator=(Reporter&&) = delete;

  // Reports a completed step. Forwards at most ten steps per second, and always the last step. Call
  // it on every rank, because the launcher uses the steps to find a rank that hangs.
  void Step(const Progress& progress);
  // Reports the results of an evaluation, such as {{"loss", 0.35}, {"accuracy", 0.87}}. Call it on
  // one rank.
  void Evaluated(int64_t step, const std::vector<std::pair<std::string, double>>& results);
  // Reports that training waits from now on, while a checkpoint of `step` is saved. The launcher
  // derives the goodput from Saving() and Saved(). Call it on every rank.
  void Saving(int64_t step);
  // Reports that the checkpoint of `step` is saved and training continues. The launcher derives the
  // age of the newest checkpoint from it. Call it on every rank.
  void Saved(int64_t step);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
