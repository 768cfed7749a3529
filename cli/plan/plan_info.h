// Reads the state of this machine for the launch plan.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/plan/launch_plan.h"

namespace dslaunch {

// Reads the environment, devices and names without any network. See FindAccelerators() for the
// arguments.
PlanInfo ReadPlanInfo(pb::Device device = pb::DEVICE_AUTO, bool only_cuda = false,
                      bool each_alone = false);

// Returns `pwd`, the value of PWD, if it is an absolute path of the current folder without "." and
// "..", else "". It may have links that getcwd() follows.
std::string NamedWorkingDirectory(const std::string& pwd);

// Returns the current folder under the user's own name for it, PWD, because its links may lead
// elsewhere on a node.
Result<std::string> WorkingDirectory();

}  // namespace dslaunch
