// Runs programs with the environment of an accelerate configuration (--accelerate_config).
#pragma once

#include <string>

#include "agent/host/program.h"
#include "base/error.h"

namespace dslaunch {

// Returns `resolved` unchanged if the front end sent no accelerate configuration with `program`.
// Otherwise returns a command that runs python/dslaunch/accelerate_env.py, which then runs the
// program. The interpreter is the interpreter of the script, or the one that would run a script if
// `program` is not Python. Fails as FindExecutable() does.
Result<ResolvedProgram> WithAccelerate(ResolvedProgram resolved, const pb::Program& program,
                                       const Environment& environment,
                                       const std::string& node_name);

}  // namespace dslaunch
