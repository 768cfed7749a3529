// Finds CPython's interpreter in a running process.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/stacks/memory_reader.h"
#include "agent/stacks/process_maps.h"
#include "agent/stacks/python_offsets.h"
#include "base/error.h"

namespace dslaunch {

struct PythonLayout {
  int minor = 0;         // minor version of Python 3
  uint64_t runtime = 0;  // address of the symbol _PyRuntime
  PythonOffsets offsets = {};
};

// Returns the layout of the interpreter in `libpython3.*`, or else in the first mapped file, which
// is the program. Returns nullopt if neither exports _PyRuntime. Fails, with the reason, if the
// version of an interpreter is unsupported or was not found. Pure except for reads of `memory`.
Result<std::optional<PythonLayout>> FindLayout(const std::vector<FileMapping>& maps,
                                               MemoryReader& memory);

// Returns the minor version in a file name, such as 11 for "libpython3.11.so.1.0" and "python3.11";
// nullopt for other names. Pure.
std::optional<int> MinorOfName(std::string_view file_name);

}  // namespace dslaunch
