// Lists the symbols that a shared library exports, without loading the library. Uses only the
// standard library and POSIX.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Returns the names of the exported symbols of an ELF file that begin with `prefix`, sorted and
// without the prefix. Omits names with characters other than letters, digits and _. Fails with
// kBadInput if the file cannot be read or is not an ELF file of this machine's word size.
Result<std::vector<std::string>> ExportedSymbols(const std::string& path, std::string_view prefix);

}  // namespace dslaunch
