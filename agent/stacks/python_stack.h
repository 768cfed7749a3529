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
  std::string function;  // qualified from 3.11 on; UTF-8, except for bytes of file names
  std::string file;
  int line = 0;  // 0 if unknown

  bool operator==(const PythonFrame&) const = default;
};

struct PythonThread {
  pid_t tid = 0;  // 0 if unknown
  bool has_gil = false;
  std::vector<PythonFrame> frames = {};  // frames, innermost first
  // Hash of code addresses and instruction offsets. A thread whose signature has changed has moved.
  uint64_t signature = 0;
};

struct PythonStacks {
  std::vector<PythonThread> threads;  // main thread or else the oldest first
  bool torn = false;  // true if data changed during both walks, so that frames may be missing
  bool cut = false;   // true if there are more threads or frames than the limits allow
};

inline constexpr size_t kMaxReadFrames = 256;   // frames of a thread
inline constexpr size_t kMaxReadThreads = 512;  // threads of all interpreters
inline constexpr size_t kMaxInterpreters = 16;

// Walks the threads of all interpreters. `tids`: the threads in the kernel, the main thread first.
// Threads that are not in `tids` have ended and are omitted, unless no thread is in it. Whatever
// the memory contains, the walk ends and its result is bounded. Pure but for `memory`.
PythonStacks ReadPythonStacks(MemoryReader& memory, const PythonLayout& layout,
                              std::span<const pid_t> tids);

}  // namespace dslaunch
