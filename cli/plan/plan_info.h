// What is true of this machine, for the launch plan.
#pragma once

#include "cli/plan/launch_plan.h"

namespace dslaunch {

// Reads environment, devices and names; asks no network. `each_alone`: as for CountVisible.
PlanInfo ReadPlanInfo(bool each_alone = false);

}  // namespace dslaunch
