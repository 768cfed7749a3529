// The exception in flight, as one line for the user and an exit code.
#pragma once

#include "dslaunch/error.h"

namespace dslaunch {

// To be called in a catch block. Without LibTorch's back trace; that another rank was lost or did
// not answer is said so. The code is that of a TrainError, else 1.
TrainError ExplainException();

}  // namespace dslaunch
