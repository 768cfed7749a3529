// The program that the kernel starts to run another one: the interpreter in a script's first line,
// or the loader of a dynamically linked program. If it is missing, execve() fails as if the program
// itself were missing. Pure, except CheckInterpreter().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

struct Interpreter {
  std::string path;        // as written in the file
  bool is_loader = false;  // belongs to an ELF program rather than a script
  // True if the script's first line ends with "\r", as editors on Windows write it.
  bool ends_with_return = false;
};

// Number of leading bytes that ReadInterpreter() needs.
inline constexpr size_t kMaxInterpreterHead = 4096;

// Returns the interpreter by the first bytes of a file; nullopt if the program needs none or does
// not name it there.
std::optional<Interpreter> ReadInterpreter(std::string_view head);

// Fails with kCannotExecute, naming the node, if the interpreter of the file at `path` is missing.
// `name` is the program's name as the user gave it.
Result<void> CheckInterpreter(const std::string& path, const std::string& cwd,
                              const std::string& name, const std::string& node);

}  // namespace dslaunch
