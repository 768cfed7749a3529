// What the threads of a process do, by what /proc says: for a rank that seems to hang.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct ThreadState {
  std::string name;      // as the kernel has it: 15 bytes
  char state = '?';      // one letter, as in /proc/PID/stat
  uint64_t ticks = 0;    // of CPU time
  std::string call;      // the system call it is in; empty: none, or not for us to know
  std::string waits_in;  // the kernel function it waits in; empty likewise
};

struct ProcessThreads {
  pid_t pid = 0;
  std::string command;
  std::vector<ThreadState> threads;  // the first one is the process's own
};

// The content of /proc/PID/task/TID/stat; nullopt when that is not what it is. Pure.
std::optional<ThreadState> ParseThreadStat(std::string_view stat);

// The name of the system call in /proc/PID/task/TID/syscall; empty for a thread that is in none.
// Pure.
std::string ParseSystemCall(std::string_view text);

// The innermost function in /proc/PID/task/TID/stack. Pure.
std::string ParseKernelStack(std::string_view text);

// The threads of `root` and of its descendants; what cannot be read is left out.
std::vector<ProcessThreads> ReadThreads(pid_t root);

// In words, for a person: a process that is stopped or cannot be interrupted is called so first,
// then one line for each group of threads that do the same, the busiest first; at most `max_lines`
// lines, each after a newline. Pure.
//   `ticks_per_s`  of the kernel's clock
std::string DescribeThreads(const std::vector<ProcessThreads>& processes, size_t max_lines,
                            long ticks_per_s);

}  // namespace dslaunch
