// Which executable a worker runs on this node.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
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

// `environment` with NAME=VALUE in place of any NAME.
Environment WithVariable(Environment environment, const std::string& name,
                         const std::string& value);

// The value of NAME, or nullptr; points into `environment`.
const char* FindVariable(const Environment& environment, const std::string& name);

// In pieces where a rank's own argument goes between them.
struct ResolvedProgram {
  std::vector<std::string> argv;  // argv[0] is the executable's absolute path, once it is found
  std::string cwd;
  // "--local_rank" or "--local-rank", of which each rank gets its own as NAME=N; empty: none does.
  std::string local_rank_option = {};
  size_t local_rank_at = 0;  // in argv
};

// kBadInput, naming the node, where `cwd` is no folder of it.
Result<void> CheckWorkingDirectory(const std::string& cwd, const std::string& node_name);

// Finds the executable as a shell in `cwd` with `environment` would. kNotFound (127) or
// kCannotExecute (126), naming the node; the latter also where its interpreter is not there.
Result<std::string> FindExecutable(const std::string& name, const Environment& environment,
                                   const std::string& cwd, const std::string& node_name);

// What runs a script here: PYTHON_EXEC, else VIRTUAL_ENV's python3, else that of the front
// end's environment, else python3 from PATH. It is not looked for yet.
std::string PythonInterpreter(const pb::Program& program, const Environment& environment);

// The whole command of a program, but for its place. Python is PythonInterpreter, with -u. A script
// or module whose source names an option --local_rank (agent/host/script_options.h) gets it before
// the user's arguments, unless the user does not want that: DeepSpeed gives it to every script,
// torchrun to none, and a script that takes none does not start with it. argv[0] is not looked for
// yet, and a script that is not here takes no option.
ResolvedProgram ComposeProgram(const pb::Program& program, const Environment& environment);

// The same once all of it is found. kNotFound (127), kCannotExecute (126), kBadInput (a working
// directory that is not there) or, for a launcher without `nested`, kUsage, naming the node.
Result<ResolvedProgram> ResolveProgram(const pb::Program& program, const Environment& environment,
                                       const std::string& node_name);

}  // namespace dslaunch
