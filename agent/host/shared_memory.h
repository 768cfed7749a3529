// Whether /dev/shm may have ended a program: a write to shared memory that does not fit there is
// answered by SIGBUS.
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

// Of /dev/shm, now; nullopt: there is none.
std::optional<SharedMemorySpace> ReadSharedMemorySpace();

// The fact about /dev/shm that a user should know of a program that `signal` ended (0: none) and
// that wrote `last_lines`; nullopt: neither is about shared memory, or there is much of it. Pure.
std::optional<std::string> SharedMemoryEvidence(int signal, std::string_view last_lines,
                                                const std::optional<SharedMemorySpace>& space);

}  // namespace dslaunch
