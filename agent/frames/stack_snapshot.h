// Copies the stacks of a process's threads, in which frame_reader.h finds the frames of C and C++.
// A thread that waits in the kernel is not stopped; a running thread is stopped for microseconds.
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

inline constexpr size_t kMaxSnapshotBytes = size_t{128} << 10;  // limit of each stack, from its top

// Registers by their DWARF numbers; nullopt if a value is unknown.
inline constexpr size_t kRegisters = 33;
struct Registers {
  uint64_t pc = 0;
  uint64_t sp = 0;
  std::array<std::optional<uint64_t>, kRegisters> values = {};
};

struct StackSnapshot {
  pid_t tid = 0;
  Registers registers = {};
  std::vector<std::byte> stack = {};  // bytes from address registers.sp on
};

// Returns the registers that /proc/PID/task/TID/syscall shows of a thread that waits in the kernel:
// only pc and sp. Returns nullopt if the thread runs, or if the text is malformed.
std::optional<Registers> ParseWaitingRegisters(std::string_view syscall_text);

// Copies the stacks of the threads of `tids` that wait in the kernel. Adds the running threads to
// `running`.
std::vector<StackSnapshot> CopyWaitingStacks(pid_t pid, const std::vector<pid_t>& tids,
                                             std::vector<pid_t>& running);

// Stops a running thread until its registers and stack are copied. Returns nullopt if that fails or
// the thread does not stop within `limit`. Call it in a separate process that then ends: the kernel
// continues the thread when its tracer ends for any reason.
std::optional<StackSnapshot> CopyRunningStack(pid_t pid, pid_t tid, milliseconds limit);

}  // namespace dslaunch
