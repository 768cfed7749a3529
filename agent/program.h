// Which executable a worker runs on this node.
#pragma once

#include <string>
#include <vector>

#include "proto/contract/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// NAME=VALUE strings.
using Environment = std::vector<std::string>;

// What this node gives to programs: the agent's own environment without sshd's variables, by which
// bash takes a worker for a login and reads .bashrc, whatever that prints.
Environment NodeEnvironment();

// Later definitions of a name win; order of first appearance is kept.
Environment MergeEnvironment(Environment base,
                             const google::protobuf::RepeatedPtrField<pb::EnvVar>& overrides);

// The value of NAME, or nullptr; points into `environment`.
const char* FindVariable(const Environment& environment, const std::string& name);

struct ResolvedProgram {
  std::vector<std::string> argv;  // argv[0] is the executable's absolute path
  std::string cwd;
};

// Finds the program as a shell in `program.cwd` with `environment` would. A Python script gets
// PYTHON_EXEC, else VIRTUAL_ENV's python3, else python3 from PATH in front. kNotFound (127),
// kCannotExecute (126) or kBadInput (a working directory that is not there), naming the node.
Result<ResolvedProgram> ResolveProgram(const pb::Program& program, const Environment& environment,
                                       const std::string& node_name);

}  // namespace dslaunch
