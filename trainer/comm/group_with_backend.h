// A group of one process that simulates its other ranks, to try sizes that this machine does not
// have.
#pragma once

#include "dslaunch/process_group.h"

namespace dslaunch {

// Makes a group whose exchanges all go to `backend`, which plays the other ranks. There are no
// other processes, and Finish waits for nothing. A subgroup has the same backend, and passes it
// ranks of the whole group.
ProcessGroup GroupWithBackend(int rank, int world_size,
                              const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace dslaunch
