// The environment, folder and limits that a shell script makes: --venv_script.
#pragma once

#include <string>
#include <string_view>

#include "agent/host/program.h"
#include "base/deadline.h"
#include "base/error.h"
#include "proto/supervisor.pb.h"

namespace dslaunch {

inline constexpr milliseconds kVenvTimeout{20'000};      // of the 30 s that a node may prepare
inline constexpr size_t kMaxVenvEnvironment = 1u << 20;  // bytes

// What a program that is started from the shell would inherit.
struct SourcedShell {
  Environment environment;
  std::string cwd;         // as the shell names it
  pb::ShellLimits limits;  // that the script has changed
};

// Has bash source `script` in `cwd` with `environment`. A relative path starts at `cwd` or, where
// there is none, at HOME, at which DeepSpeed's start. The script gets no arguments and knows that
// it is sourced; what it prints to stdout goes where its stderr goes. Blocks for at most `timeout`.
// Errors are kBadInput, kNotFound (127) or kTimedOut and name node, script and the last line of its
// stderr; one is that it ended with another code than 0.
Result<SourcedShell> SourceScript(const std::string& script, const std::string& cwd,
                                  const Environment& environment, const std::string& node_name,
                                  milliseconds timeout = kVenvTimeout);

// The resource limits of `after` that differ from `before`, both the text of /proc/PID/limits.
// Skips lines of another form. Pure.
google::protobuf::RepeatedPtrField<pb::ResourceLimit> ChangedLimits(std::string_view before,
                                                                    std::string_view after);

}  // namespace dslaunch
