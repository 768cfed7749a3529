// srun of Slurm.
#pragma once

#include "cli/launchers/start_all.h"

namespace dslaunch {

// A step gets the share of each node (LauncherProgram::shares), so nodes with unequal shares are
// components of their own on the command line.
extern const StartAll kSrun;

}  // namespace dslaunch
