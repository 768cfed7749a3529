// The options become the nodes' policy on failures and their timeouts. Pure.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/user_stdin.h"
#include "cli/request/launch_options.h"
#include "proto/agent.pb.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Unless the user says how often, a job that has spares or a range of nodes may restart 3 times,
// any other never. Errors are kUsage.
Result<pb::Policy> MakePolicy(const LaunchOptions& options, const LaunchPlan& plan);

// The terminal of this command's stderr.
struct UserTerminal {
  bool is_output = false;  // there is one
  int columns = 80;
  int rows = 24;
};

// What rank 0 reads, and what the user should know of it.
struct StdinPlan {
  pb::RankStdin rank_stdin;
  std::string notice;  // for when this command's stdin has something to read; empty: none
};

// Unless the user says, rank 0 reads this command's stdin where that is a pipe, or a file from its
// beginning, which no shell above this command may be reading; and what is typed where it is the
// only rank, or has a terminal of its own. A trainer and a detached job read nothing. `ranks`: 0
// where it is not known.
StdinPlan PlanStdin(const LaunchOptions& options, int ranks, const UserStdin& input,
                    const UserTerminal& terminal);

pb::Timeouts MakeTimeouts(const LaunchOptions& options);

}  // namespace dslaunch
