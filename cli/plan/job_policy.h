// The options become the nodes' policy on failures and their timeouts. Pure.
#pragma once

#include "base/error.h"
#include "cli/launch_options.h"
#include "cli/plan/launch_plan.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Unless the user says how often, a job that has spares or a range of nodes may restart 3 times,
// any other never. Errors are kUsage.
Result<pb::Policy> MakePolicy(const LaunchOptions& options, const LaunchPlan& plan);

pb::Timeouts MakeTimeouts(const LaunchOptions& options);

}  // namespace dslaunch
