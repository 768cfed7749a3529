// Reads the memory that a process shares with others, through which MPI exchanges messages on one
// machine.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace dslaunch {

// Returns a digest of the content of the writable shared mappings of a process. The digest is not
// 0, even if there are no such mappings. Returns 0 if they cannot be read or are larger than
// `max_bytes`. Reads only pages that are in memory, so it waits for no file and allocates no pages.
// Takes about 1 ms for 4 MB.
uint64_t DigestOfSharedMemory(pid_t pid, size_t max_bytes);

}  // namespace dslaunch
