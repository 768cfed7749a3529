// The options become the nodes' policy on failures and their timeouts. Pure.
#pragma once

#include "base/error.h"
#include "cli/launch_options.h"
#include "cli/plan/launch_plan.h"
#include "proto/agent.pb.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Unless the user says how often, a job that has spares or a range of nodes may restart 3 times,
// any other never. Errors are kUsage.
Result<pb::Policy> MakePolicy(const LaunchOptions& options, const LaunchPlan& plan);

// The user's own terminal.
struct UserTerminal {
  bool is_stdin = false;   // this command's stdin is one
  bool is_output = false;  // and its stderr
  int columns = 80;
  int rows = 24;
};

// What rank 0 reads. Unless the user says, it reads what is typed where it is the only rank, or has
// a terminal of its own; a trainer reads nothing. `ranks`: 0 where it is not known.
pb::RankStdin MakeRankStdin(const LaunchOptions& options, int ranks, const UserTerminal& user);

pb::Timeouts MakeTimeouts(const LaunchOptions& options);

}  // namespace dslaunch
