// Checks that a front end has enough file descriptors, because gRPC ends the process if it gets
// none.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "base/os/subprocess.h"

namespace dslaunch {

// Fails with kUnavailable if there are too few descriptors for connections to `nodes` nodes at the
// same time. Pure.
Result<void> CheckOpenFiles(size_t nodes, const OpenFiles& files);

}  // namespace dslaunch
