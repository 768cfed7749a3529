// What is true of this machine, for the launch plan.
#pragma once

#include "cli/plan/launch_plan.h"

namespace dslaunch {

// Reads environment, devices and names; asks no network.
PlanInfo ReadPlanInfo();

}  // namespace dslaunch
