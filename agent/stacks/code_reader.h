// Reads code objects of CPython: their names, files and lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/stacks/memory_reader.h"
#include "agent/stacks/python_layout.h"

namespace dslaunch {

struct CodeObject {
  std::string function;
  std::string file;
  int first_line = 0;
  uint64_t bytecode = 0;        // address of the bytecode; 0 before Python 3.11
  uint64_t bytecode_bytes = 0;  // size of the bytecode; 0 before Python 3.11
  std::vector<std::byte> lines;
};

// Reads code objects from a process's memory. Memory may be freed and reused meanwhile, so the
// types of all objects are checked. Caches the objects that were read.
class CodeReader {
 public:
  CodeReader(MemoryReader& memory, const PythonLayout& layout) : memory_(memory), layout_(layout) {}

  enum class Kind { kUnreadable, kCode, kNone, kOther };
  // Returns the kind of the Python object at `address`.
  Kind KindOf(uint64_t address);

  // Returns the code object at `address`, which is valid as long as the reader; nullptr if there is
  // no code object at that address.
  const CodeObject* Read(uint64_t address);

 private:
  std::string TypeName(uint64_t object);
  std::optional<CodeObject> ReadCode(uint64_t address);
  std::optional<std::string> ReadText(uint64_t object);
  bool ReadBytes(uint64_t object, std::vector<std::byte>& bytes);

  MemoryReader& memory_;
  const PythonLayout& layout_;
  std::map<uint64_t, std::string> type_names_;  // names of types, by the type's address
  std::map<uint64_t, CodeObject> codes_;
};

}  // namespace dslaunch
