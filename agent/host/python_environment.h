// Activates the front end's Python environment on a node, and finds the Python interpreter of a
// program.
#pragma once

#include <string>
#include <vector>

#include "agent/host/program.h"
#include "base/error.h"
#include "proto/job.pb.h"

namespace dslaunch {

struct PythonPlace {
  Environment environment;  // environment that the ranks of the program get
  std::string notice = {};  // notice for the user; empty if there is none
};

// Returns `environment` with the front end's Python environment activated, if it is active at the
// front end. To activate it, sets its variable and puts its `bin` first in PATH if it is in the
// front end's PATH. Keeps a VIRTUAL_ENV that names another folder, with a notice if that changes
// which interpreter runs, and a PATH that the user gave. Fails with kNotFound (127), naming node
// and folder, if the program needs the environment and this node lacks it or its interpreter.
Result<PythonPlace> EnterPythonEnvironment(const pb::Program& program, Environment environment,
                                           const std::string& node_name);

// Returns the interpreter of a program whose argv[0] is `executable`: `executable` itself if it is
// Python, the interpreter in its first line if it is a Python script, and "" for any other program.
// For scripts that begin with "#!/usr/bin/env python3", looks in the PATH of `environment`.
std::string PythonInterpreterOf(const std::string& executable, const Environment& environment);

}  // namespace dslaunch
