// Plans the faults of a history, which is one simulated run of a job, in addition to the failures
// of ranks and the delays of the network. All faults are drawn from the seed.
#pragma once

#include "tests/sim/world.h"

namespace dslaunch::sim {

// Plans the job's faults: processes and machines that die, stall or lose their network, and clocks
// that jump.
void PlanFaults(World& world);

}  // namespace dslaunch::sim
