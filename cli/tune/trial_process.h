// Runs the jobs of `dslaunch tune`, one at a time: each is this program again, as `train`.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cli/tune/trial_output.h"

namespace dslaunch {

// The seam to real jobs.
class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Runs `dslaunch` with these arguments and waits for its end, at most `limit_s` seconds and the
  // time that ending it takes. JobRun::signal is set if the user ended it, or wanted to before.
  virtual JobRun Run(const std::vector<std::string>& arguments, double limit_s) = 0;
};

// While it exists, the stop signals of this process (Ctrl-C, SIGTERM, SIGHUP, SIGQUIT) only end
// the job that runs: it gets the same signal, in a process group of its own, so that the terminal
// does not send it too, and again for each further one. The job gets SIGTERM at its limit and if
// this process dies. One thread; create and destroy it there.
class ProcessJobRunner : public JobRunner {
 public:
  // `executable` is dslaunch's absolute path.
  explicit ProcessJobRunner(std::string executable);
  ~ProcessJobRunner() override;
  ProcessJobRunner(const ProcessJobRunner&) = delete;
  JobRun Run(const std::vector<std::string>& arguments, double limit_s) override;

 private:
  // Returns the newest signal that arrived; 0: none.
  int TakeSignal();

  const std::string executable_;
  UniqueFd signals_;
};

}  // namespace dslaunch
