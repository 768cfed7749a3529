// Runs programs with the environment of an accelerate configuration (--accelerate_config).
#pragma once

#include <string>

#include "agent/host/program.h"
#include "base/error.h"

namespace dslaunch {

// Returns `resolved` with python/dslaunch/accelerate_env.py in front if the front end sent an
// accelerate configuration with `program`, otherwise unchanged. The interpreter is the one that
// runs the script, or the one that would run a script if `program` is not Python. Fails as
// FindExecutable() does.
Result<ResolvedProgram> WithAccelerate(ResolvedProgram resolved, const pb::Program& program,
                                       const Environment& environment,
                                       const std::string& node_name);

}  // namespace dslaunch
