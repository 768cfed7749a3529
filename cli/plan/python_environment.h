// Finds the front end's Python environment, which ranks on all nodes get too.
#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace dslaunch {

// A virtual environment or a conda prefix that the front end uses.
struct FrontPython {
  std::string folder = {};  // absolute path; empty if no environment is used
  // Variable that makes the environment active, VIRTUAL_ENV or CONDA_PREFIX; empty if dslaunch is
  // only installed in the environment.
  std::string variable = {};
  bool in_path = false;  // whether PATH contains the environment's `bin`; false unless active
  std::string installed_in = {};  // environment in which dslaunch is installed; empty if none
  // A python3 in PATH that is not the system's if `folder` is empty, else empty.
  std::string other = {};
};

// Returns the environment in which dslaunch is installed; empty if dslaunch is in no environment.
// Derived from the folder of argv[0] without following links, because tools such as pipx link to
// environments of their own.
std::string OwnPythonFolder(const std::string& argv0);

// Returns the environment of the front end, which is the first that exists of VIRTUAL_ENV,
// `installed_in`, and CONDA_PREFIX if PATH leads to its python3.
FrontPython FindFrontPython(const std::vector<std::string>& environment,
                            const std::string& installed_in);

// Returns whether a program that is started directly uses the environment `folder`: YES if it is a
// program of that environment or its words name the environment's Python, PERHAPS for scripts and
// shells, else NO. Looks programs up in this machine's PATH.
pb::PythonEnvironment::Need PythonNeedOf(const std::vector<std::string>& words,
                                         const std::string& folder);

}  // namespace dslaunch
