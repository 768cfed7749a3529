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
  std::string name = {};      // the kernel's name, at most 15 bytes
  char state = '?';           // state letter of /proc/PID/stat
  uint64_t ticks = 0;         // CPU time
  std::string call = {};      // system call that it is in; empty: none or unknown
  std::string target = {};    // file of that call's descriptor; empty: unknown
  std::string waits_in = {};  // kernel function that it sleeps in; empty: none or unknown
};

// Parses the content of /proc/PID/task/TID/stat; nullopt if it is malformed. Pure.
std::optional<ThreadState> ParseThreadStat(std::string_view stat);

struct SystemCall {
  std::string name = {};               // empty: the thread is in none
  std::optional<uint64_t> on_fd = {};  // its first argument, if that is a descriptor
  bool maps_memory = false;            // it changes what is mapped, as mmap does
};

// Parses the content of /proc/PID/task/TID/syscall. Pure.
SystemCall ParseSystemCall(std::string_view text);

// Returns the innermost function in /proc/PID/task/TID/stack. Pure.
std::string ParseKernelStack(std::string_view text);

// Describes an open file: "the FIFO /tmp/a", "a pipe", "a socket", "/data/b", from the target of
// its link in /proc/PID/fd and whether it is a FIFO. Pure.
std::string DescribeDescriptor(std::string_view link, bool is_fifo);

struct ThreadStates {
  std::vector<ThreadState> threads;  // those that can be read, the main thread first
  // A thread waits in the kernel for its memory, so reading that memory may wait as well.
  bool waits_for_memory = false;
  bool cut = false;  // there are more threads than `max_threads`
};

// Returns the threads of a process.
ThreadStates ReadThreadStates(pid_t pid, size_t max_threads);

}  // namespace dslaunch
