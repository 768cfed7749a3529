// Copies the stacks of threads of a process without Python, from which frame_reader.h finds the
// frames of C and C++. A thread that waits in the kernel is not stopped; a running one is, for
// microseconds.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/deadline.h"

namespace dslaunch {

inline constexpr size_t kMaxSnapshotBytes = size_t{128} << 10;  // bytes of each stack, from its top

// Registers by their numbers in DWARF; nullopt: not known.
inline constexpr size_t kRegisters = 33;
struct Registers {
  uint64_t pc = 0;
  uint64_t sp = 0;
  std::array<std::optional<uint64_t>, kRegisters> values = {};
};

struct StackSnapshot {
  pid_t tid = 0;
  Registers registers = {};
  std::vector<std::byte> stack = {};  // begins at registers.sp
};

// Returns the registers that /proc/PID/task/TID/syscall shows of a thread that waits in the
// kernel: pc and sp. nullopt if it runs, or for other text. Pure.
std::optional<Registers> ParseWaitingRegisters(std::string_view syscall_text);

// Copies the stacks of those threads that wait in the kernel. Returns the others in `running`.
std::vector<StackSnapshot> CopyWaitingStacks(pid_t pid, const std::vector<pid_t>& tids,
                                             std::vector<pid_t>& running);

// Stops a running thread until its registers and stack are copied; nullopt if that fails or the
// thread does not stop within `limit`. To be called in a process of its own, which then ends: the
// kernel continues the thread when its tracer ends, however it ends.
std::optional<StackSnapshot> CopyRunningStack(pid_t pid, pid_t tid, milliseconds limit);

}  // namespace dslaunch
