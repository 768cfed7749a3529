// Copies the stacks of a process's threads, in which frame_reader.h finds the frames of C and C++.
// Does not stop threads that wait in the kernel, and stops running threads for microseconds.
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

// Limit of the bytes that are copied of each stack, from its top.
inline constexpr size_t kMaxSnapshotBytes = size_t{128} << 10;

// Number of registers, by DWARF number, of which a value may be known.
inline constexpr size_t kRegisters = 33;
// The registers of a thread. `values` is indexed by DWARF number; a value is nullopt if unknown.
struct Registers {
  uint64_t pc = 0;
  uint64_t sp = 0;
  std::array<std::optional<uint64_t>, kRegisters> values = {};
};

struct StackSnapshot {
  pid_t tid = 0;
  Registers registers = {};
  std::vector<std::byte> stack = {};  // bytes of the stack, from address registers.sp on
};

// Returns the registers of a thread that waits in the kernel, from the content of
// /proc/PID/task/TID/syscall: only pc and sp. Returns nullopt if the thread runs, or if the text is
// malformed.
std::optional<Registers> ParseWaitingRegisters(std::string_view syscall_text);

// Returns copies of the stacks of those threads in `tids` that wait in the kernel. Adds the running
// threads to `running`.
std::vector<StackSnapshot> CopyWaitingStacks(pid_t pid, const std::vector<pid_t>& tids,
                                             std::vector<pid_t>& running);

// Stops a running thread and returns a copy of its registers and stack. Returns nullopt if that
// fails or the thread does not stop within `limit`. Call this in a separate process that then
// exits: the kernel continues the thread when its tracer exits for any reason.
std::optional<StackSnapshot> CopyRunningStack(pid_t pid, pid_t tid, milliseconds limit);

}  // namespace dslaunch
