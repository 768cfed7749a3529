// mpirun of Open MPI.
#pragma once

#include "cli/launchers/start_all.h"

namespace dslaunch {

extern const StartAll kMpirun;

}  // namespace dslaunch
