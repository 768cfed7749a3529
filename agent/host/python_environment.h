// The front end's Python environment on a node, and which interpreter runs a program.
#pragma once

#include <string>
#include <vector>

#include "agent/host/program.h"
#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

struct PythonPlace {
  Environment environment;  // of the ranks
  std::string notice = {};  // for the user; else empty
};

// Puts `environment` into the front end's Python environment, if that is active: its variable is
// set, and its `bin` is first in PATH if it is in the front end's PATH. A VIRTUAL_ENV that names
// another folder stays, with a notice where that changes what runs, and so does a PATH that the
// user gives. kNotFound (127), naming node and folder, if the program needs the
// environment and this node lacks it or its interpreter.
Result<PythonPlace> EnterPythonEnvironment(const pb::Program& program, Environment environment,
                                           const std::string& node_name);

// Returns the interpreter of a program whose argv[0] is `executable`: itself if it is Python, that
// of its first line if it is a script of Python; "" for any other program. `environment` has the
// PATH for scripts that begin with "#!/usr/bin/env python3".
std::string PythonInterpreterOf(const std::string& executable, const Environment& environment);

}  // namespace dslaunch
