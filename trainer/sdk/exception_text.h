// Converts the exception in flight to a one-line message and an exit code.
#pragma once

#include "dslaunch/error.h"

namespace dslaunch {

// Call it in a catch block. Omits LibTorch's back trace, and reports if another rank was lost or
// did not answer. The code is that of a TrainError, else 1.
TrainError ExplainException();

}  // namespace dslaunch
