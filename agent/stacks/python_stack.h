// Reads the Python stacks of all threads of a process from its memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/stacks/memory_reader.h"
#include "agent/stacks/python_layout.h"

namespace dslaunch {

struct PythonFrame {
  std::string function;  // qualified from 3.11 on; UTF-8, but for bytes that a file name may have
  std::string file;
  int line = 0;  // 0: none

  bool operator==(const PythonFrame&) const = default;
};

struct PythonThread {
  pid_t tid = 0;  // 0: unknown
  bool has_gil = false;
  std::vector<PythonFrame> frames = {};  // the innermost is the first
  // Hash of code addresses and instruction offsets: a thread with another one has moved.
  uint64_t signature = 0;
};

struct PythonStacks {
  std::vector<PythonThread> threads;  // the process' main thread, or else the oldest, is the first
  bool torn = false;  // the data changed during both walks, so frames may be missing
  bool cut = false;   // there are more threads or frames than the limits allow
};

inline constexpr size_t kMaxReadFrames = 256;   // frames of a thread
inline constexpr size_t kMaxReadThreads = 512;  // threads of all interpreters
inline constexpr size_t kMaxInterpreters = 16;

// Walks the threads of all interpreters. `tids` are the threads that the kernel knows, the main
// thread first; threads that are not among them have ended and are left out, unless no thread is.
// Whatever the memory contains, the walk ends and its result is bounded. Pure but for `memory`.
PythonStacks ReadPythonStacks(MemoryReader& memory, const PythonLayout& layout,
                              std::span<const pid_t> tids);

}  // namespace dslaunch
