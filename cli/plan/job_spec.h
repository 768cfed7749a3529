// Builds the specification of a job from its options. Each node gets the whole specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "cli/plan/launch_plan.h"
#include "cli/request/launch_options.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// Facts about a job that its options do not contain.
struct JobSpecInfo {
  std::string job_id = {};
  std::string cwd = {};           // current folder, where a relative --log_dir starts
  std::string description = {};   // command line without secrets
  std::string tag_template = {};  // template of the tags of lines in the filtered logs; often empty
  uint32_t pid = 0;               // process id of the front end
};

pb::Device DeviceOf(DeviceChoice choice);

// Returns the specification without the program, the copies, rank 0's stdin and the list of nodes.
// Errors are kUsage. Has no side effects.
Result<pb::JobSpec> MakeJobSpec(const LaunchOptions& options, const LaunchPlan& plan,
                                const JobSpecInfo& info);

// Returns the request for node `index` of the plan: `common` with the node's index, devices and
// variables. Has no side effects.
pb::PrepareRequest PrepareRequestFor(const pb::PrepareRequest& common, const LaunchPlan& plan,
                                     size_t index);

}  // namespace dslaunch
