// Finds the executable of a worker on this node and composes its command.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

// An environment: variables in the form NAME=VALUE.
using Environment = std::vector<std::string>;

// Returns the environment that this node gives to programs. It is the agent's own environment
// without the variables of sshd, because these would make bash treat a worker as a login and run
// .bashrc, which may print anything.
Environment NodeEnvironment();

// Returns `base` with the variables of `overrides`. A later value of a name replaces an earlier
// value; names keep the order of their first appearance.
Environment MergeEnvironment(Environment base,
                             const google::protobuf::RepeatedPtrField<pb::EnvVar>& overrides);

// Returns `environment` with NAME=VALUE in place of any other value of NAME.
Environment WithVariable(Environment environment, const std::string& name,
                         const std::string& value);

// Returns the value of NAME, which points into `environment`; nullptr if NAME is not set.
const char* FindVariable(const Environment& environment, const std::string& name);

// The command of a program, into which a different argument can be inserted for each rank.
struct ResolvedProgram {
  // Words of the command. argv[0] is an absolute path once the executable was found.
  std::vector<std::string> argv;
  std::string cwd;
  // "--local_rank" or "--local-rank" if each rank gets this option as NAME=N; otherwise empty.
  std::string local_rank_option = {};
  size_t local_rank_at = 0;  // index in argv at which to insert that option
};

// Fails with kBadInput, naming the node, if `cwd` is not a folder on this node.
Result<void> CheckWorkingDirectory(const std::string& cwd, const std::string& node_name);

// Returns the path of the executable that a shell in `cwd` with `environment` would run. Fails with
// kNotFound (127) or kCannotExecute (126), naming the node. kCannotExecute includes a missing
// interpreter and a program for another machine type.
Result<std::string> FindExecutable(const std::string& name, const Environment& environment,
                                   const std::string& cwd, const std::string& node_name);

// Returns the path of the interpreter for scripts on this node: PYTHON_EXEC, else VIRTUAL_ENV's
// python3, else python3 of the front end's environment, else python3 in PATH. The path may not
// exist.
std::string PythonInterpreter(const pb::Program& program, const Environment& environment);

// Returns the whole command of a program before its executable is looked up. A script or module
// runs in PythonInterpreter() with -u. If its source defines an option --local_rank
// (agent/host/script_options.h), it gets this option before the user's arguments, unless the user
// disabled that. DeepSpeed passes the option to every script and torchrun to none, and a script
// without the option would fail with it. A script that is not on this node does not get the option.
ResolvedProgram ComposeProgram(const pb::Program& program, const Environment& environment);

// Returns the command of ComposeProgram() with its files looked up. Fails, naming the node, with
// kNotFound (127), kCannotExecute (126), kBadInput (missing working directory) or, for a launcher
// without `nested`, kUsage.
Result<ResolvedProgram> ResolveProgram(const pb::Program& program, const Environment& environment,
                                       const std::string& node_name);

}  // namespace dslaunch
