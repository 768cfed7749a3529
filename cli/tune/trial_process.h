// Runs the jobs of `dslaunch tune`, one at a time. Each job is this program, started as `train`.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cli/tune/trial_output.h"

namespace dslaunch {

// Runs jobs. Tests replace it by an implementation without processes.
class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Runs `dslaunch` with these arguments and waits for its end, for at most `limit_s` seconds plus
  // the time that ending the job takes. JobRun::signal is set if the user ended the job, or
  // requested its end before it began.
  virtual JobRun Run(const std::vector<std::string>& arguments, double limit_s) = 0;
};

// Runs jobs as processes. While this object exists, the stop signals of this process (Ctrl-C,
// SIGTERM, SIGHUP, SIGQUIT) only end the running job. Each signal is forwarded to the job, which is
// in a separate process group, because otherwise the terminal would send the signal to it a second
// time. The job gets SIGTERM at its time limit and if this process dies. Create, use and destroy
// the object on one thread.
class ProcessJobRunner : public JobRunner {
 public:
  // Runs jobs with `executable`, the absolute path of dslaunch.
  explicit ProcessJobRunner(std::string executable);
  ~ProcessJobRunner() override;
  ProcessJobRunner(const ProcessJobRunner&) = delete;
  JobRun Run(const std::vector<std::string>& arguments, double limit_s) override;

 private:
  // Returns the newest signal that arrived; 0 if none arrived.
  int TakeSignal();

  const std::string executable_;
  UniqueFd signals_;
};

}  // namespace dslaunch
