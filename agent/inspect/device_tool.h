// Asks a vendor's own program whether its devices and their driver answer.
#pragma once

#include <string>

#include "agent/accelerators/accelerators.h"
#include "base/deadline.h"

namespace dslaunch {

// Runs the row's tool if it is in this node's PATH. Returns why it failed, "npu-smi: exit code 1";
// empty if it succeeded, or if there is no such program. Blocks for at most `patience`: a broken
// device can block the program forever, in a thread that is then abandoned.
std::string DeviceToolTrouble(const AcceleratorRow& row, milliseconds patience);

}  // namespace dslaunch
