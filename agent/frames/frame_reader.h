// Finds the frames of C and C++ in copied stacks by the unwind tables, symbols and line tables of
// the process's files (elfutils' libdwfl). The files belong to the program, so reading them may
// take long, need much memory, or crash. Call it in a separate process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/frames/stack_snapshot.h"

namespace dslaunch {

inline constexpr size_t kMaxNativeFrames = 64;  // limit for a thread; the innermost frames are kept

struct NativeFrame {
  std::string function;  // demangled name without parameters; empty without a symbol
  // Path of the source file. Path of the library or program if that has no debug information or is
  // a library of the system.
  std::string file;
  int line = 0;  // 0 if `file` is not a source file
};

// Returns the frames of each snapshot, innermost first, as far as they can be found. The frames of
// a waiting thread end where a frame cannot be found from the stack pointer alone. Opens the files
// that `maps`, the content of /proc/PID/maps, names, as the process sees them. Returns an empty
// list and sets `problem` if dslaunch was built without libdwfl or the files cannot be read.
std::vector<std::vector<NativeFrame>> ReadNativeFrames(pid_t pid, const std::string& maps,
                                                       const std::vector<StackSnapshot>& snapshots,
                                                       std::string& problem);

}  // namespace dslaunch
