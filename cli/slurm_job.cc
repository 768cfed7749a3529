#include "cli/slurm_job.h"

#include "base/deadline.h"
#include "base/os/subprocess.h"
#include "cli/transport/child_process.h"

namespace dslaunch {
namespace {

constexpr milliseconds kAnswersWithin(10'000);
// Limit of the output; enough for a line for each group of equal nodes.
constexpr size_t kMaxBytes = 16 << 20;

}  // namespace

Result<std::string> DescribeSlurmJob(const std::string& job_id) {
  const std::string path = FindProgram("scontrol");
  if (path.empty()) return Error{ExitCode::kUnavailable, "there is no scontrol in PATH"};
  return RunForOutput({path, "show", "job", "--details", job_id}, Deadline::After(kAnswersWithin),
                      kMaxBytes);
}

}  // namespace dslaunch
