// Finds the frames of C and C++ in copied stacks, by the unwind tables, symbols and line tables of
// the process' files (elfutils' libdwfl). The files are the program's, so reading them may take
// long, much memory, or crash: to be called in a process of its own.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/frames/stack_snapshot.h"

namespace dslaunch {

inline constexpr size_t kMaxNativeFrames = 64;  // limit of a thread; the innermost are kept

struct NativeFrame {
  std::string function;  // demangled, without parameters; empty: no symbol
  std::string file;      // source file; the path of the library or program if that has no debug
                         // information or is a library of the system
  int line = 0;          // 0: `file` is not a source file
};

// Returns the frames of each of `snapshots`, innermost first, as far as they could be found: a
// waiting thread's frames end where a frame cannot be found from the stack pointer alone. Opens the
// files that `maps`, the content of /proc/PID/maps, names, as the process sees them. Empty, with
// `problem`, if dslaunch was built without libdwfl or the files cannot be read.
std::vector<std::vector<NativeFrame>> ReadNativeFrames(pid_t pid, const std::string& maps,
                                                       const std::vector<StackSnapshot>& snapshots,
                                                       std::string& problem);

}  // namespace dslaunch
