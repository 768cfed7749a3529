// Creates a group in one process that simulates its other ranks, to try numbers of ranks that this
// machine does not have.
#pragma once

#include "dslaunch/process_group.h"

namespace dslaunch {

// Returns a group that passes all exchanges to `backend`, which simulates the other ranks. There
// are no other processes, and Finish does not wait. A subgroup has the same backend, to which it
// passes ranks of the whole group.
ProcessGroup GroupWithBackend(int rank, int world_size,
                              const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace dslaunch
