// Finds the line numbers of CPython's code objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dslaunch {

// Returns the line of the instruction at byte `instruction` of the bytecode; 0 if the instruction
// has no line. A negative index means that the code has not begun. `table` is co_lnotab for minor
// versions 8 and 9, and co_linetable for later versions (PEP 626 for 10, the location table of PEP
// 657 from 11 on). It may be malformed. Pure.
int FindLine(int minor, std::span<const std::byte> table, int first_line, int64_t instruction);

}  // namespace dslaunch
