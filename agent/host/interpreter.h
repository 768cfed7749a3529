// The program that the kernel starts to run another one: a script's interpreter, by its first line,
// or the loader of a dynamically linked program. Where it is missing, execve() fails as if the
// program itself were. Pure, but for CheckInterpreter.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

struct Interpreter {
  std::string path;               // as the file has it
  bool is_loader = false;         // of an ELF program, not of a script
  bool ends_with_return = false;  // a script's first line, as editors of Windows write it
};

inline constexpr size_t kMaxInterpreterHead = 4096;  // bytes of a file that ReadInterpreter needs

// By the first bytes of a file; nullopt: it needs no interpreter, or does not name one there.
std::optional<Interpreter> ReadInterpreter(std::string_view head);

// kCannotExecute, naming the node, where the interpreter of the file at `path` is not there.
//   `name`  of the program, as its user gave it
Result<void> CheckInterpreter(const std::string& path, const std::string& cwd,
                              const std::string& name, const std::string& node);

}  // namespace dslaunch
