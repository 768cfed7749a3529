// Reads the environment, current folder and limits that a shell script sets (--venv_script).
#pragma once

#include <string>
#include <string_view>

#include "agent/host/program.h"
#include "base/deadline.h"
#include "base/error.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

// Limit for running the script, a part of the 30 s within which a node must prepare.
inline constexpr milliseconds kVenvTimeout{20'000};
// Limit of the environment's size, in bytes.
inline constexpr size_t kMaxVenvEnvironment = 1u << 20;

// The state that a program would inherit from the shell that sourced the script.
struct SourcedShell {
  Environment environment;
  std::string cwd;         // path of the current folder as the shell names it
  pb::ShellLimits limits;  // limits that the script has changed
};

// Returns the state of a shell after it has sourced `script`, using bash in the folder `cwd` with
// `environment`. Looks up a relative path in `cwd`, then in HOME, where DeepSpeed looks. The script
// gets no arguments and can detect that it is sourced; its stdout goes to its stderr. Blocks for at
// most `timeout`. Fails with kBadInput, kNotFound (127) or kTimedOut, also if the script exits with
// a code other than 0. Messages name the node, the script and the last line of the script's stderr.
Result<SourcedShell> SourceScript(const std::string& script, const std::string& cwd,
                                  const Environment& environment, const std::string& node_name,
                                  milliseconds timeout = kVenvTimeout);

// Returns the resource limits in `after` that differ from `before`. Both are texts of
// /proc/PID/limits, of which malformed lines are skipped.
google::protobuf::RepeatedPtrField<pb::ResourceLimit> ChangedLimits(std::string_view before,
                                                                    std::string_view after);

}  // namespace dslaunch
