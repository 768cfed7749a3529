// The environment of accelerate's configuration: --accelerate_config.
#pragma once

#include <string>

#include "agent/host/program.h"
#include "base/error.h"

namespace dslaunch {

// `resolved`, begun by python/dslaunch/accelerate_env.py where the front end has sent a
// configuration of accelerate's with `program`, else as it is. The interpreter is the one that runs
// the script, or the one that would run one where `program` is not Python's. Errors are
// FindExecutable's.
Result<ResolvedProgram> WithAccelerate(ResolvedProgram resolved, const pb::Program& program,
                                       const Environment& environment,
                                       const std::string& node_name);

}  // namespace dslaunch
