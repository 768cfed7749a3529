// What goes wrong in a history besides what ranks and networks do anyway; drawn from the seed.
#pragma once

#include "tests/sim/world.h"

namespace dslaunch::sim {

// Plans the job's faults: processes and machines that die, stand still or lose their network, and
// clocks that jump.
void PlanFaults(World& world);

}  // namespace dslaunch::sim
