// Checks the machine type for which a program was built against this node's.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// Returns whether programs of type `program` run on a processor of type `own`, both as ElfMachine()
// returns them: the types are equal, the processor also supports `program`, or a type is unknown.
bool IsOwnMachine(std::string_view program, std::string_view own);

// Fails with kCannotExecute, naming the node and both types, if the file at `path`, or the
// interpreter of the script there, was built for another machine type and the kernel cannot run it.
// The kernel may run it through an emulator. If the types differ, starts a process to test that.
// `name`: the program's name as the user gave it.
Result<void> CheckMachine(const std::string& path, const std::string& name,
                          const std::string& node);

}  // namespace dslaunch
