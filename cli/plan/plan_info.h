// Reads the facts about this machine on which the launch plan depends.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/plan/launch_plan.h"

namespace dslaunch {

// Reads the environment, devices and names of this machine without using the network. `device` is
// the kind of devices to look for; DEVICE_AUTO takes the first kind that programs can see, only
// NVIDIA's GPUs if `only_cuda`. `each_alone` is true if each rank sees a single device.
PlanInfo ReadPlanInfo(pb::Device device = pb::DEVICE_AUTO, bool only_cuda = false,
                      bool each_alone = false);

// Returns `pwd`, the value of PWD, if it is an absolute path of the current folder without "." and
// "..", else "". The path may contain symbolic links, which getcwd() would resolve.
std::string NamedWorkingDirectory(const std::string& pwd);

// Returns the current folder under the name that the user gave it, PWD. Links in PWD are not
// resolved, because they may lead elsewhere on a node.
Result<std::string> WorkingDirectory();

}  // namespace dslaunch
