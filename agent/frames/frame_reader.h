// Finds C and C++ frames in copied stacks, using the unwind tables, symbols and line tables of the
// process's files (elfutils' libdwfl). The files belong to the program, so reading them may take
// long, need much memory, or crash. Use this code in a separate process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/frames/stack_snapshot.h"

namespace dslaunch {

// Limit of the frames of a thread; the innermost frames are kept.
inline constexpr size_t kMaxNativeFrames = 64;

struct NativeFrame {
  std::string function;  // demangled name without parameters; empty if there is no symbol
  // Path of the source file. If the library or program has no debug information or belongs to the
  // system, path of that library or program.
  std::string file;
  int line = 0;  // source line; 0 if `file` is not a source file
};

// Returns the frames of each snapshot, innermost first. The frames of a waiting thread end where a
// frame cannot be found from the stack pointer alone. `maps` is the content of /proc/PID/maps; the
// files that it names are opened as the process sees them. Returns an empty list and sets `problem`
// if dslaunch was built without libdwfl or the files cannot be read.
std::vector<std::vector<NativeFrame>> ReadNativeFrames(pid_t pid, const std::string& maps,
                                                       const std::vector<StackSnapshot>& snapshots,
                                                       std::string& problem);

}  // namespace dslaunch
