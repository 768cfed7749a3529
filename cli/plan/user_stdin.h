// What this command's stdin is.
#pragma once

#include <cstddef>
#include <string>

namespace dslaunch {

struct UserStdin {
  // kNothing: it is closed, /dev/null or another device, or a file that is read to its end.
  enum class Kind { kNothing, kTerminal, kPipe, kFile };
  Kind kind = Kind::kNothing;  // kPipe: sockets too
  // The nearest shell that runs this command and has the same stdin, as "bash (process 17)", so
  // that it may be reading a script or a list there; empty: none is known.
  std::string shell;
  size_t offset = 0;  // of kFile: how much of it was read before
};

// Reads descriptor `fd`'s state, and that of the processes above this one. Reads nothing from `fd`.
UserStdin ReadUserStdin(int fd);

}  // namespace dslaunch
