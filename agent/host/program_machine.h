// The machine type for which a program was built, and whether this node runs it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// Returns whether programs of type `program` run on a processor of type `own`, both as ElfMachine()
// returns them: the same type, one that the processor has too, or unknown. Pure.
bool IsOwnMachine(std::string_view program, std::string_view own);

// Fails with kCannotExecute, naming the node and both types, if the file at `path`, or the
// interpreter of the script there, was built for another machine type and the kernel does not run
// it: it may do so by an emulator. `name` is the program's name as the user gave it. Starts a
// process to ask the kernel, only if the types differ.
Result<void> CheckMachine(const std::string& path, const std::string& name,
                          const std::string& node);

}  // namespace dslaunch
