// Checks that a program was built for the machine type of this node.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// Returns whether programs of type `program` run on a processor of type `own`, both as ElfMachine()
// returns them. They do if the types are equal, the processor also supports `program`, or a type is
// unknown.
bool IsOwnMachine(std::string_view program, std::string_view own);

// Fails with kCannotExecute if the file at `path`, or the interpreter of the script there, was
// built for another machine type and the kernel cannot run it. The message names the node and both
// types. The kernel may run such a file through an emulator, so if the types differ, a process is
// started to test that. `name` is the program's name as the user gave it.
Result<void> CheckMachine(const std::string& path, const std::string& name,
                          const std::string& node);

}  // namespace dslaunch
