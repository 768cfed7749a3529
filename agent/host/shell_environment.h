// The environment that a shell script makes: --venv_script.
#pragma once

#include <string>

#include "agent/host/program.h"
#include "base/deadline.h"
#include "base/error.h"

namespace dslaunch {

inline constexpr milliseconds kVenvTimeout{20'000};      // of the 30 s that a node may prepare
inline constexpr size_t kMaxVenvEnvironment = 1u << 20;  // bytes

// `environment` as bash has it after it sourced `script` in `cwd`. A relative path starts at `cwd`
// or, where there is none, at HOME, at which DeepSpeed's start. The script gets no arguments and
// knows that it is sourced; what it prints to stdout goes where its stderr goes. Blocks for at most
// `timeout`. Errors are kBadInput, kNotFound (127) or kTimedOut and name node, script and the last
// line of its stderr; one is that it ended with another code than 0.
Result<Environment> SourceScript(const std::string& script, const std::string& cwd,
                                 const Environment& environment, const std::string& node_name,
                                 milliseconds timeout = kVenvTimeout);

}  // namespace dslaunch
