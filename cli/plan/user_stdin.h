// The kind and state of this command's stdin.
#pragma once

#include <cstddef>
#include <string>

namespace dslaunch {

struct UserStdin {
  // kNothing: closed, /dev/null or another device, or a file that was read to its end.
  enum class Kind { kNothing, kTerminal, kPipe, kFile };
  Kind kind = Kind::kNothing;  // kPipe includes sockets
  // The nearest shell above this command with the same stdin, as "bash (process 17)". It may be
  // reading a script or a list there. Empty: none is known.
  std::string shell;
  size_t offset = 0;  // offset of kFile: bytes that were read before
};

// Reads the state of descriptor `fd` and of the processes above this one. Reads no bytes of `fd`.
UserStdin ReadUserStdin(int fd);

}  // namespace dslaunch
