// Detects whether a program may have ended because /dev/shm was full: the kernel sends SIGBUS for a
// write to shared memory that does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

struct SharedMemorySpace {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// Returns the current space of /dev/shm; nullopt if /dev/shm does not exist.
std::optional<SharedMemorySpace> ReadSharedMemorySpace();

// Returns a fact about /dev/shm for the user of a program that `signal` ended (0 if no signal did)
// and that wrote `last_lines`. Returns nullopt if neither the signal nor the lines point to shared
// memory, or if enough shared memory is free.
std::optional<std::string> SharedMemoryEvidence(int signal, std::string_view last_lines,
                                                const std::optional<SharedMemorySpace>& space);

}  // namespace dslaunch
