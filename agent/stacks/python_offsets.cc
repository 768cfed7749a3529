#include "agent/stacks/python_offsets.h"

#include <bit>
#include <cstring>
#include <string>

namespace dslaunch {
namespace {

struct Version {
  int minor;
  PythonOffsets offsets;
};

constexpr Version kVersions[] = {
#include "agent/stacks/python_offsets.inc"
};

// Indexes of the words of _Py_DebugOffsets. The words of each structure begin with its size.
struct DebugIndexes {
  size_t interpreter, next, threads_head, gil, gil_state, gil_locked, gil_holder;
  size_t thread, thread_next, current_frame, thread_id, native_thread_id;
  size_t frame, previous, executable, instruction, owner;
  size_t code, file, qualified_name, lines, first_line, bytecode;
};

constexpr size_t kCookie = 0;
constexpr size_t kVersion = 1;
constexpr size_t kFreeThreaded = 2;
constexpr size_t kInterpretersHead = 5;

constexpr DebugIndexes k313 = {6,  8,  9,  14, 15, 17, 18, 19, 21, 23, 24, 25,
                               28, 29, 30, 31, 33, 34, 35, 37, 38, 39, 43};
constexpr DebugIndexes k314 = {6,  8,  9,  15, 16, 18, 19, 22, 24, 26, 27, 28,
                               31, 32, 33, 34, 36, 39, 40, 42, 43, 44, 48};

Error Refuse(std::string reason) { return Error{ExitCode::kUnavailable, std::move(reason)}; }

// Reads the offsets of members of one structure, and checks that they are less than its size.
class Structure {
 public:
  Structure(const DebugWords& words, size_t size_index) : words_(words), size_(words[size_index]) {}
  void Take(size_t index, uint32_t& offset) {
    constexpr uint64_t kMaxBytes = 16 << 20;
    if (words_[index] >= size_ || size_ > kMaxBytes) fits_ = false;
    offset = static_cast<uint32_t>(words_[index]);
  }
  bool fits() const { return fits_; }

 private:
  const DebugWords& words_;
  const uint64_t size_;
  bool fits_ = true;
};

}  // namespace

std::optional<PythonOffsets> TabledOffsets(int minor) {
  for (const Version& version : kVersions) {
    if (version.minor == minor) return version.offsets;
  }
  return std::nullopt;
}

bool HasDebugCookie(const DebugWords& words) {
  return std::memcmp(&words[kCookie], "xdebugpy", sizeof words[kCookie]) == 0;
}

std::optional<int> DebugMinor(const DebugWords& words) {
  constexpr uint64_t kMajorShift = 24, kMinorShift = 16, kByte = 0xff;
  if (words[kVersion] >> kMajorShift != 3) return std::nullopt;
  return static_cast<int>((words[kVersion] >> kMinorShift) & kByte);
}

Result<PythonOffsets> OffsetsOf(const DebugWords& words) {
  const std::optional<int> minor = DebugMinor(words);
  constexpr int kFirstWithOffsets = 13;
  if (!minor || *minor < kFirstWithOffsets || *minor > kNewestPython)
    return Refuse("CPython 3." + std::to_string(minor.value_or(0)) + " is not known");
  if (words[kFreeThreaded] != 0)
    return Refuse("free-threaded CPython 3." + std::to_string(*minor) + " is not known");
  const DebugIndexes& at = *minor == kFirstWithOffsets ? k313 : k314;
  PythonOffsets offsets;
  Structure runtime(words, kInterpretersHead - 2);
  runtime.Take(kInterpretersHead, offsets.interpreters_head);
  Structure interpreter(words, at.interpreter);
  interpreter.Take(at.next, offsets.interpreter_next);
  interpreter.Take(at.threads_head, offsets.threads_head);
  interpreter.Take(at.gil, offsets.interpreter_gil);
  uint32_t gil_state = 0;
  interpreter.Take(at.gil_state, gil_state);
  interpreter.Take(at.gil_locked, offsets.gil_locked);
  interpreter.Take(at.gil_holder, offsets.gil_holder);
  Structure thread(words, at.thread);
  thread.Take(at.thread_next, offsets.thread_next);
  thread.Take(at.current_frame, offsets.thread_frame);
  thread.Take(at.thread_id, offsets.thread_id);
  thread.Take(at.native_thread_id, offsets.native_thread_id);
  Structure frame(words, at.frame);
  frame.Take(at.previous, offsets.frame_previous);
  frame.Take(at.executable, offsets.frame_code);
  frame.Take(at.instruction, offsets.frame_instruction);
  frame.Take(at.owner, offsets.frame_owner);
  Structure code(words, at.code);
  code.Take(at.file, offsets.code_file);
  code.Take(at.qualified_name, offsets.code_name);
  code.Take(at.lines, offsets.code_lines);
  code.Take(at.first_line, offsets.code_first_line);
  code.Take(at.bytecode, offsets.code_bytecode);
  if (!runtime.fits() || !interpreter.fits() || !thread.fits() || !frame.fits() || !code.fits() ||
      offsets.gil_locked < gil_state || offsets.gil_holder < gil_state)
    return Refuse("its offsets for debuggers cannot be right");
  // Another interpreter may own the GIL, so these offsets are made relative to the GIL.
  offsets.gil_locked -= gil_state;
  offsets.gil_holder -= gil_state;
  return offsets;
}

}  // namespace dslaunch
