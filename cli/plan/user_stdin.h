// Describes the kind and state of this command's stdin.
#pragma once

#include <cstddef>
#include <string>

namespace dslaunch {

struct UserStdin {
  // The kind of stdin. kNothing stands for a closed stdin, /dev/null or another device, or a file
  // that was read to its end.
  enum class Kind { kNothing, kTerminal, kPipe, kFile };
  Kind kind = Kind::kNothing;  // kind of stdin; sockets count as kPipe
  // The nearest shell above this command with the same stdin, such as "bash (process 17)". The
  // shell may be reading a script or a list from stdin. Empty if no such shell is known.
  std::string shell;
  size_t offset = 0;  // number of bytes that were read before, for kFile
};

// Reads the state of descriptor `fd` and of the processes above this one, without reading bytes
// from `fd`.
UserStdin ReadUserStdin(int fd);

}  // namespace dslaunch
