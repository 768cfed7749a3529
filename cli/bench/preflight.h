// --preflight: examines and measures the nodes before a job, and sets unfit ones aside.
#pragma once

#include "base/error.h"
#include "base/log_level.h"
#include "cli/commands/doctor.h"
#include "cli/output/terminal.h"
#include "cli/plan/launch_plan.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {

struct PreflightResult {
  LaunchPlan plan;   // without the nodes that were set aside
  std::string json;  // DoctorJson with the measurements, for the job's folder
};

// Examines the nodes of `request.plan` as doctor does, and prints what is wrong and what follows:
// an unfit node is replaced by a spare, or left out where the job has a range of nodes
// (ReplaceUnfit). Fails with kUnavailable if a node that cannot be used has no replacement.
// Precondition: `request.bench` is set. Blocks as ExamineNodes().
Result<PreflightResult> RunPreflight(const DoctorRequest& request, const AgentBinary& agent,
                                     LogLevel log_level, Terminal& terminal);

}  // namespace dslaunch
