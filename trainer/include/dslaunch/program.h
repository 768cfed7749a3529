// What a training program does besides training: it ends with the right exit code and one line
// about an error, stops when it is asked to, and reports its progress to the launcher.
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
//   85  fn returned after StopRequested gave true, or threw HostsUpdatedInterrupt
//       (horovod_elastic.h): the launcher takes this for a job that has saved its state and is to
//       be started again, not for a failure
//   1   fn threw; of a TrainError its exit code. The message goes to stderr as one line,
//       "PROGRAM: rank 3: MESSAGE", without LibTorch's back trace.
int Main(const std::function<void()>& fn);

// Whether any rank of the group was sent SIGINT or SIGTERM, as `dslaunch stop`, Ctrl-C and a time
// limit do. Collective: all ranks get the same answer at the same call, so none leaves the others
// waiting. From the first call on these signals do not end the process, so save and return soon:
// SIGKILL follows after --grace.
bool StopRequested(const ProcessGroup& group);

// What the launcher shows in its progress line and gives as the result of --json. Never blocks,
// never fails; without a launcher it does nothing. One object a process; not thread-safe.
class Reporter {
 public:
  struct Progress {
    int64_t step = 0;         // done, from 1
    int64_t total_steps = 0;  // 0: unknown
    std::optional<double> loss = {};
    std::optional<double> samples_per_s = {};  // over all ranks
    std::optional<double> tokens_per_s = {};   // the same; shown in place of samples_per_s
  };

  Reporter();
  ~Reporter();
  Reporter(Reporter&&) noexcept;
  Reporter& operator=(Reporter&&) = delete;

  // At most ten a second are sent on, and that of the last step. Call it on every rank: by its
  // steps the launcher sees which rank hangs.
  void Step(const Progress& progress);
  // Of one rank: the results of an evaluation, as {{"loss", 0.35}, {"accuracy", 0.87}}.
  void Evaluated(int64_t step, const std::vector<std::pair<std::string, double>>& results);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch
