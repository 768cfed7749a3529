// The memory that a process shares with others, in which MPI exchanges messages on one machine.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace dslaunch {

// Returns a digest of the content of the writable shared mappings of a process; never 0, also
// without any. 0 if it cannot be read or the process uses more than `max_bytes` of them. Reads only
// pages that the process has in memory, so it waits for no file and allocates nothing. Takes about
// 1 ms for 4 MB.
uint64_t DigestOfSharedMemory(pid_t pid, size_t max_bytes);

}  // namespace dslaunch
