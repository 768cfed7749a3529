// The front end's Python environment, which ranks on all nodes get too.
#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace dslaunch {

// A virtual environment or a conda prefix.
struct FrontPython {
  std::string folder = {};    // absolute path; empty without environment
  std::string variable = {};  // VIRTUAL_ENV or CONDA_PREFIX if it is active; else empty: dslaunch
                              // is only installed in it
  bool in_path = false;       // its `bin` is in PATH; only if it is active
  std::string installed_in = {};  // OwnPythonFolder()
  std::string other =
      {};  // without `folder`: a python3 in PATH that is not the system's; else empty
};

// Returns the environment in which dslaunch is installed, by the folder of the program as it was
// called (argv[0], whose links are not followed: tools such as pipx link to environments of their
// own); empty if it is in none.
std::string OwnPythonFolder(const std::string& argv0);

// Returns the environment. It is, in this order: VIRTUAL_ENV, `installed_in`, CONDA_PREFIX if PATH
// leads to its python3.
FrontPython FindFrontPython(const std::vector<std::string>& environment,
                            const std::string& installed_in);

// Whether a program that is started directly uses the environment `folder`: YES if it is a program
// of that environment or its words name its Python, PERHAPS for scripts and shells. Looks programs
// up in this machine's PATH.
pb::PythonEnvironment::Need PythonNeedOf(const std::vector<std::string>& words,
                                         const std::string& folder);

}  // namespace dslaunch
