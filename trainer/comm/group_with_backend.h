// One rank of a group whose other ranks are played, to try a size that this machine does not have.
#pragma once

#include "dslaunch/process_group.h"

namespace dslaunch {

// What the ranks exchange, `backend` takes and gives. There are no other processes, and nothing is
// awaited at the end. A subgroup has the same backend, which knows its ranks by that of the world.
ProcessGroup GroupWithBackend(int rank, int world_size,
                              const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace dslaunch
