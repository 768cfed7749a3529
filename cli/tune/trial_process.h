// Runs the jobs of `dslaunch tune`, one at a time: each is this program again, as `train`.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cli/tune/trial_output.h"

namespace dslaunch {

// Runs jobs. Tests replace it.
class JobRunner {
 public:
  virtual ~JobRunner() = default;
  // Runs `dslaunch` with these arguments and waits for its end, for at most `limit_s` seconds plus
  // the time that ending it takes. JobRun::signal is set if the user ended the job, or asked for
  // that before it began.
  virtual JobRun Run(const std::vector<std::string>& arguments, double limit_s) = 0;
};

// While this object exists, the stop signals of this process (Ctrl-C, SIGTERM, SIGHUP, SIGQUIT)
// only end the running job: each is sent on to the job, which is in a process group of its own,
// because the terminal would otherwise send it a second time. The job gets SIGTERM at its time
// limit and if this process dies. Create, use and destroy it on one thread.
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
