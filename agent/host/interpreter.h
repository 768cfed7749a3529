// Finds the program that the kernel starts to run another program: the interpreter in a script's
// first line, or the loader of a dynamically linked program. If that program is missing, execve()
// fails as if the program itself were missing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

struct Interpreter {
  std::string path;        // path of the interpreter as the file contains it
  bool is_loader = false;  // true for an ELF program's loader, false for a script's interpreter
  // Whether the script's first line ends with "\r", as editors on Windows write it.
  bool ends_with_return = false;
};

// Number of bytes at the beginning of a file that ReadInterpreter() needs.
inline constexpr size_t kMaxInterpreterHead = 4096;

// Returns the interpreter that the first bytes of a file name; nullopt if the program needs no
// interpreter or `head` does not name the interpreter.
std::optional<Interpreter> ReadInterpreter(std::string_view head);

// Fails with kCannotExecute, naming the node, if the interpreter of the file at `path` is missing.
// `name` is the program's name as the user gave it.
Result<void> CheckInterpreter(const std::string& path, const std::string& cwd,
                              const std::string& name, const std::string& node);

}  // namespace dslaunch
