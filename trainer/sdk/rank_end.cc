#include "trainer/sdk/rank_end.h"

#include <sys/wait.h>

#include <algorithm>

#include "base/exit_code.h"
#include "base/text/signal_name.h"

namespace dslaunch {
namespace {

int CodeOf(const RankEnd& end) {
  if (WIFSIGNALED(end.wait_status)) return ExitCodeForSignal(WTERMSIG(end.wait_status));
  return WEXITSTATUS(end.wait_status);
}

}  // namespace

bool Failed(const RankEnd& end) { return end.wait_status != 0 || !end.reached_spawn; }

TrainError SpawnError(const std::vector<RankEnd>& ends) {
  auto cause = std::find_if(ends.begin(), ends.end(), [](const RankEnd& end) {
    return Failed(end) && !end.stopped && !end.victim;
  });
  if (cause == ends.end()) cause = std::find_if(ends.begin(), ends.end(), Failed);
  const std::string rank = "rank " + std::to_string(cause->rank) + " ";
  if (WIFSIGNALED(cause->wait_status)) {
    return {ExitCode{CodeOf(*cause)},
            rank + "was killed by " + SignalName(WTERMSIG(cause->wait_status))};
  }
  if (CodeOf(*cause) != 0) {
    return {ExitCode{CodeOf(*cause)}, rank + "ended with exit code " +
                                          std::to_string(CodeOf(*cause)) +
                                          "; its error message is on stderr"};
  }
  return {ExitCode::kUsage,
          rank +
              "ended before its Spawn call: a process with several threads starts ranks "
              "by running main() again, which must reach the same call; or call Spawn before "
              "anything that starts threads"};
}

}  // namespace dslaunch
