// Converts the options into the policy on failures, rank 0's stdin and the timeouts. All functions
// are pure.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/user_stdin.h"
#include "cli/request/launch_options.h"
#include "proto/agent.pb.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Returns the policy on failures. By default a job with spares or a range of nodes may restart 3
// times, and any other job never. Errors are kUsage.
Result<pb::Policy> MakePolicy(const LaunchOptions& options, const LaunchPlan& plan);

// The terminal to which this command's stderr leads.
struct UserTerminal {
  bool is_output = false;  // whether stderr leads to a terminal
  int columns = 80;
  int rows = 24;
};

// The source of rank 0's stdin.
struct StdinPlan {
  pb::RankStdin rank_stdin;
  std::string notice;  // notice about bytes in stdin that are not read; empty if there are none
};

// Decides what rank 0 reads. By default rank 0 reads this command's stdin if that is a pipe, or a
// file of which no byte was read yet, unless a shell above this command may be reading it too. Rank
// 0 reads typed input if it is the only rank or has a terminal of its own. A trainer and a detached
// job read nothing. `ranks` is 0 if the number of ranks is not known.
StdinPlan PlanStdin(const LaunchOptions& options, int ranks, const UserStdin& input,
                    const UserTerminal& terminal);

// Returns the tests that --preflight makes on each node separately: that the node can write to the
// folders given with absolute paths, that its GPUs are healthy and free, and the health command.
// `log_dir` is absolute or empty.
pb::MeasureRequest MakeNodeTests(const LaunchOptions& options, const std::string& log_dir);

// Returns the tests that each node makes before another attempt: MakeNodeTests, or nullopt without
// --preflight.
std::optional<pb::MeasureRequest> MakeNodeCheck(const LaunchOptions& options,
                                                const std::string& log_dir);

pb::Timeouts MakeTimeouts(const LaunchOptions& options);

}  // namespace dslaunch
