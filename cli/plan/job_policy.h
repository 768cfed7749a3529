// Turns the options into the policy on failures, rank 0's stdin and the timeouts. Pure.
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
// times, any other never. Errors are kUsage.
Result<pb::Policy> MakePolicy(const LaunchOptions& options, const LaunchPlan& plan);

// The terminal of this command's stderr.
struct UserTerminal {
  bool is_output = false;  // stderr is a terminal
  int columns = 80;
  int rows = 24;
};

// The stdin of rank 0.
struct StdinPlan {
  pb::RankStdin rank_stdin;
  std::string notice;  // notice for the user if stdin has unread bytes; else empty
};

// Decides what rank 0 reads. By default it reads this command's stdin if that is a pipe, or a file
// from its beginning that no shell above this command may be reading. It reads what is typed if it
// is the only rank or has a terminal of its own. A trainer and a detached job read nothing.
// `ranks`: 0 if the number is not known.
StdinPlan PlanStdin(const LaunchOptions& options, int ranks, const UserStdin& input,
                    const UserTerminal& terminal);

// Returns what --preflight tests of a node by itself: that it can write to the folders given with
// absolute paths, that its GPUs are healthy and free, and the health command. `log_dir` is
// absolute, or empty.
pb::MeasureRequest MakeNodeTests(const LaunchOptions& options, const std::string& log_dir);

// Returns what each node tests of itself before another attempt: MakeNodeTests, or nullopt without
// --preflight.
std::optional<pb::MeasureRequest> MakeNodeCheck(const LaunchOptions& options,
                                                const std::string& log_dir);

pb::Timeouts MakeTimeouts(const LaunchOptions& options);

}  // namespace dslaunch
