// Checks that a front end has enough file descriptors, because gRPC ends the process if it cannot
// open one.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "base/os/subprocess.h"

namespace dslaunch {

// Returns kUnavailable if there are too few descriptors for concurrent connections to `nodes`
// nodes. Has no side effects.
Result<void> CheckOpenFiles(size_t nodes, const OpenFiles& files);

}  // namespace dslaunch
