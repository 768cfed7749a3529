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
  std::string name = {};    // kernel's name of the thread, at most 15 bytes
  char state = '?';         // state letter in /proc/PID/stat
  uint64_t ticks = 0;       // CPU time of the thread, in clock ticks
  std::string call = {};    // current system call; empty if none or unknown
  std::string target = {};  // file that the system call uses; empty if unknown
  // Kernel function in which the thread sleeps; empty if none or unknown.
  std::string waits_in = {};
};

// Returns the thread in the content of /proc/PID/task/TID/stat; nullopt if the content is
// malformed. Pure.
std::optional<ThreadState> ParseThreadStat(std::string_view stat);

struct SystemCall {
  std::string name = {};               // name of the call; empty if the thread is in no system call
  std::optional<uint64_t> on_fd = {};  // first argument of the call, if it is a descriptor
  bool maps_memory = false;            // whether the call changes mappings, as mmap does
};

// Returns the system call in the content of /proc/PID/task/TID/syscall. The name is empty if the
// content is malformed. Pure.
SystemCall ParseSystemCall(std::string_view text);

// Returns the innermost function in the content of /proc/PID/task/TID/stack; empty if it contains
// none. Pure.
std::string ParseKernelStack(std::string_view text);

// Returns a description of an open file, such as "the FIFO /tmp/a", "a pipe", "a socket" or
// "/data/b". `link` is the target of the file's link in /proc/PID/fd. Pure.
std::string DescribeDescriptor(std::string_view link, bool is_fifo);

struct ThreadStates {
  std::vector<ThreadState> threads;  // threads that could be read, the main thread first
  // Whether a thread waits in the kernel for its memory, so that reading that memory may wait as
  // well.
  bool waits_for_memory = false;
  bool cut = false;  // whether the process has more than `max_threads` threads
};

// Returns the states of the process's threads, of at most `max_threads` threads.
ThreadStates ReadThreadStates(pid_t pid, size_t max_threads);

}  // namespace dslaunch
