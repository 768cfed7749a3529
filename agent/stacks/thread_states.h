// Reads the states of the threads of a process from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct ThreadState {
  pid_t tid = 0;
  std::string name = {};      // name in the kernel, at most 15 bytes
  char state = '?';           // state letter of /proc/PID/stat
  uint64_t ticks = 0;         // CPU time in clock ticks
  std::string call = {};      // current system call; empty if none or unknown
  std::string target = {};    // file of that call's descriptor; empty if unknown
  std::string waits_in = {};  // kernel function that the thread sleeps in; empty if none or unknown
};

// Parses the content of /proc/PID/task/TID/stat; nullopt if it is malformed. Pure.
std::optional<ThreadState> ParseThreadStat(std::string_view stat);

struct SystemCall {
  std::string name = {};               // empty if the thread is in no system call
  std::optional<uint64_t> on_fd = {};  // first argument, if that is a descriptor
  bool maps_memory = false;            // true if the call changes mappings, as mmap does
};

// Parses the content of /proc/PID/task/TID/syscall. The name is empty if the text is malformed.
// Pure.
SystemCall ParseSystemCall(std::string_view text);

// Returns the innermost function in the content of /proc/PID/task/TID/stack; empty if there is
// none. Pure.
std::string ParseKernelStack(std::string_view text);

// Returns a description of an open file, such as "the FIFO /tmp/a", "a pipe", "a socket" or
// "/data/b". `link`: the target of its link in /proc/PID/fd. Pure.
std::string DescribeDescriptor(std::string_view link, bool is_fifo);

struct ThreadStates {
  std::vector<ThreadState> threads;  // threads that can be read, the main thread first
  // True if a thread waits in the kernel for its memory, so that reading that memory may wait as
  // well.
  bool waits_for_memory = false;
  bool cut = false;  // true if there are more threads than `max_threads`
};

// Returns the states of the process's threads, at most `max_threads`.
ThreadStates ReadThreadStates(pid_t pid, size_t max_threads);

}  // namespace dslaunch
