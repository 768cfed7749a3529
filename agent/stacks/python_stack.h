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
  std::string function;  // qualified name from 3.11 on; UTF-8 except bytes of file names
  std::string file;
  int line = 0;  // line number in `file`; 0 if unknown

  bool operator==(const PythonFrame&) const = default;
};

struct PythonThread {
  pid_t tid = 0;  // kernel's ID of the thread; 0 if unknown
  bool has_gil = false;
  std::vector<PythonFrame> frames = {};  // frames of the thread, innermost first
  // Hash of code addresses and instruction offsets. It changes if the thread moves.
  uint64_t signature = 0;
};

struct PythonStacks {
  std::vector<PythonThread> threads;  // threads, the main thread or else the oldest thread first
  // Whether the process changed the data during both attempts to read it, so that frames may be
  // missing.
  bool torn = false;
  // Whether the process has more threads or frames than the limits allow.
  bool cut = false;
};

inline constexpr size_t kMaxReadFrames = 256;   // limit of the frames of a thread
inline constexpr size_t kMaxReadThreads = 512;  // limit of the threads of all interpreters
inline constexpr size_t kMaxInterpreters = 16;

// Returns the Python stacks of the threads of all interpreters. `tids` contains the kernel's
// threads, the main thread first. Threads that are not in `tids` have ended and are omitted, unless
// no thread is in `tids`. Whatever the memory contains, the function returns and the result is
// bounded. Pure except for reads of `memory`.
PythonStacks ReadPythonStacks(MemoryReader& memory, const PythonLayout& layout,
                              std::span<const pid_t> tids);

}  // namespace dslaunch
