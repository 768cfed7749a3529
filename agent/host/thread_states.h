// What the threads of a process do, according to /proc, for a rank that seems to hang.
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
  std::string name;      // the kernel's name, at most 15 bytes
  char state = '?';      // state letter of /proc/PID/stat
  uint64_t ticks = 0;    // CPU time
  std::string call;      // system call that it is in; empty: none or unknown
  std::string waits_in;  // kernel function that it sleeps in; empty: none or unknown
};

struct ProcessThreads {
  pid_t pid = 0;
  std::string command;
  std::vector<ThreadState> threads;  // the main thread is the first
};

// Parses the content of /proc/PID/task/TID/stat; nullopt if it is malformed. Pure.
std::optional<ThreadState> ParseThreadStat(std::string_view stat);

// Returns the name of the system call in /proc/PID/task/TID/syscall; empty if the thread is in
// none. Pure.
std::string ParseSystemCall(std::string_view text);

// Returns the innermost function in /proc/PID/task/TID/stack. Pure.
std::string ParseKernelStack(std::string_view text);

// Returns the threads of `root` and its descendants, without those that cannot be read.
std::vector<ProcessThreads> ReadThreads(pid_t root);

// Describes the threads for people: first each process that is stopped or uninterruptible, then one
// line for each group of threads in the same state, the busiest first; at most `max_lines` lines,
// each preceded by a newline. `ticks_per_s` is the kernel's clock rate. Pure.
std::string DescribeThreads(const std::vector<ProcessThreads>& processes, size_t max_lines,
                            long ticks_per_s);

}  // namespace dslaunch
