// pdsh.
#pragma once

#include "cli/launchers/start_all.h"

namespace dslaunch {

extern const StartAll kPdsh;

}  // namespace dslaunch
