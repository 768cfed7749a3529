// Describes where each version of CPython stores the data from which a stack is read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"

namespace dslaunch {

// Byte offsets of members in CPython's structures. All objects have the same layout. The type is at
// 8 and the size of variable objects at 16. The content of bytes is at 32. The length of strings is
// at 16 and their state at 32.
struct PythonOffsets {
  static constexpr uint32_t kNone = UINT32_MAX;  // offset if the version has no such member

  uint32_t interpreters_head = 0;     // offset in _PyRuntime of the first interpreter
  uint32_t interpreter_next = 0;      // offset in an interpreter of the next interpreter
  uint32_t threads_head = 0;          // offset in an interpreter of the first thread state
  uint32_t gil_thread = kNone;        // in _PyRuntime: thread that holds the GIL
  uint32_t interpreter_gil = kNone;   // in an interpreter: address of its GIL
  uint32_t gil_locked = kNone;        // in a GIL: whether it is locked
  uint32_t gil_holder = kNone;        // in a GIL: thread that holds the GIL or was its last holder
  uint32_t thread_next = 0;           // in a thread state: next thread state
  uint32_t thread_id = 0;             // in a thread state: its pthread_t
  uint32_t native_thread_id = kNone;  // in a thread state: thread ID in the kernel
  uint32_t thread_frame = 0;          // in a thread state: its frame or cframe
  uint32_t cframe_frame = kNone;      // in a cframe: current frame
  uint32_t frame_previous = 0;        // in a frame: previous frame
  uint32_t frame_code = 0;            // in a frame: its code object
  uint32_t frame_instruction = 0;     // in a frame: address from 3.11 on, index before
  uint32_t frame_owner = kNone;       // in a frame: kind of its owner
  uint32_t code_file = 0;             // in a code object: file name
  uint32_t code_name = 0;             // in a code object: qualified name from 3.11 on
  uint32_t code_lines = 0;            // in a code object: table of line numbers
  uint32_t code_first_line = 0;       // in a code object: first line's number
  uint32_t code_bytecode = kNone;     // in a code object: bytecode
  uint32_t type_name = 24;            // in a type: its name
  uint32_t ascii_bytes = 40;          // offset of the characters of ASCII text
  uint32_t compact_bytes = 56;        // offset of the characters of other text
};

// Newest minor version of Python 3 that is supported.
inline constexpr int kNewestPython = 14;

// Returns the offsets of CPython 3.8 to 3.12, which were generated from CPython's headers; nullopt
// for other versions.
std::optional<PythonOffsets> TabledOffsets(int minor);

// Number of words at the beginning of _PyRuntime (_Py_DebugOffsets, from 3.13 on) that are read.
inline constexpr size_t kDebugWords = 49;
using DebugWords = std::array<uint64_t, kDebugWords>;

// Returns whether `words` begin with the cookie of _Py_DebugOffsets.
bool HasDebugCookie(const DebugWords& words);

// Returns the minor version in `words`; nullopt unless the major version is 3.
std::optional<int> DebugMinor(const DebugWords& words);

// Returns the offsets in `words`. Fails, with the reason, for an unsupported version, a
// free-threaded build, or invalid offsets.
Result<PythonOffsets> OffsetsOf(const DebugWords& words);

}  // namespace dslaunch
