// The executable and command of a worker on this node.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// Strings of the form NAME=VALUE.
using Environment = std::vector<std::string>;

// Returns the environment that this node gives to programs: the agent's own, without the variables
// of sshd, because with them bash takes a worker for a login and runs .bashrc, which may print
// anything.
Environment NodeEnvironment();

// Merges variables: later definitions of a name win, and the order of first appearance is kept.
Environment MergeEnvironment(Environment base,
                             const google::protobuf::RepeatedPtrField<pb::EnvVar>& overrides);

// Returns `environment` with NAME=VALUE instead of any other value of NAME.
Environment WithVariable(Environment environment, const std::string& name,
                         const std::string& value);

// Returns the value of NAME, which points into `environment`, or nullptr.
const char* FindVariable(const Environment& environment, const std::string& name);

// A command into which a rank's own argument can be inserted.
struct ResolvedProgram {
  // argv[0] is the executable's absolute path once it has been found.
  std::vector<std::string> argv;
  std::string cwd;
  // "--local_rank" or "--local-rank" if each rank gets this option as NAME=N; otherwise empty.
  std::string local_rank_option = {};
  size_t local_rank_at = 0;  // index in argv at which it is inserted
};

// Fails with kBadInput, naming the node, if `cwd` is not a folder on it.
Result<void> CheckWorkingDirectory(const std::string& cwd, const std::string& node_name);

// Finds the executable like a shell in `cwd` with `environment`. Fails with kNotFound (127) or
// kCannotExecute (126), naming the node; the latter also if its interpreter is missing or it was
// built for another machine type.
Result<std::string> FindExecutable(const std::string& name, const Environment& environment,
                                   const std::string& cwd, const std::string& node_name);

// Returns the interpreter for scripts on this node: PYTHON_EXEC, else VIRTUAL_ENV's python3, else
// python3 of the front end's environment, else python3 from PATH. Does not check that it exists.
std::string PythonInterpreter(const pb::Program& program, const Environment& environment);

// Returns the whole command of a program before its executable is looked up. Python is
// PythonInterpreter() with -u. A script or module whose source defines an option --local_rank
// (agent/host/script_options.h) gets it before the user's arguments unless the user disabled that:
// DeepSpeed passes it to every script and torchrun to none, and a script without the option would
// fail with it. A script that is not on this node does not get the option.
ResolvedProgram ComposeProgram(const pb::Program& program, const Environment& environment);

// Returns the command of ComposeProgram() with everything looked up. Fails, naming the node, with
// kNotFound (127), kCannotExecute (126), kBadInput (missing working directory) or, for a launcher
// without `nested`, kUsage.
Result<ResolvedProgram> ResolveProgram(const pb::Program& program, const Environment& environment,
                                       const std::string& node_name);

}  // namespace dslaunch
