// How many descriptors a front end needs: gRPC ends the process where it gets none.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "base/os/subprocess.h"

namespace dslaunch {

// kUnavailable: too few are left for connections to `nodes` nodes at once. Pure.
Result<void> CheckOpenFiles(size_t nodes, const OpenFiles& files);

}  // namespace dslaunch
