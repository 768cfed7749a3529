// What a shared library exports, without loading it. Standard library and POSIX only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// The names of the symbols that the ELF file defines for others and that begin with `prefix`,
// without it, sorted. Those with other characters than letters, digits and _ are left out.
// kBadInput: it cannot be read, or is no ELF file of this machine's word size.
Result<std::vector<std::string>> ExportedSymbols(const std::string& path, std::string_view prefix);

}  // namespace dslaunch
