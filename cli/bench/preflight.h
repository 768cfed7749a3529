// Implements --preflight, which examines and measures the nodes before a job, and sets unfit nodes
// aside.
#pragma once

#include "base/error.h"
#include "base/log_level.h"
#include "cli/commands/doctor.h"
#include "cli/output/terminal.h"
#include "cli/plan/launch_plan.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {

struct PreflightResult {
  LaunchPlan plan;   // plan without the nodes that were set aside
  std::string json;  // output of DoctorJson with the measurements, stored in the job's folder
};

// Examines the nodes of `request.plan` as doctor does, and prints the findings and their
// consequences. An unfit node is replaced by a spare, or left out if the job has a range of nodes
// (ReplaceUnfit). Returns kUnavailable if a node that cannot be used has no replacement. Blocks as
// long as ExamineNodes(). Precondition: `request.bench` is set.
Result<PreflightResult> RunPreflight(const DoctorRequest& request, const AgentBinary& agent,
                                     LogLevel log_level, Terminal& terminal);

}  // namespace dslaunch
