// Checks with a vendor's own program whether the vendor's devices and driver respond.
#pragma once

#include <string>

#include "agent/accelerators/accelerators.h"
#include "base/deadline.h"

namespace dslaunch {

// Runs the row's tool if it is in this node's PATH. Returns the reason if the tool failed, such as
// "npu-smi: exit code 1"; empty if it succeeded, or if there is no such program. Blocks for at most
// `patience`. A broken device can block the tool forever, so the tool runs in a thread that is
// abandoned on timeout.
std::string DeviceToolTrouble(const AcceleratorRow& row, milliseconds patience);

}  // namespace dslaunch
