// Finds the symbols that a loaded ELF file exports, in the memory of its process. Opens no files,
// so containers, replaced files and file servers that do not respond cause no problems.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "agent/stacks/memory_reader.h"

namespace dslaunch {

// Finds exported symbols by the hash table of the dynamic linker (DT_GNU_HASH). Supports 64-bit
// files of this machine's byte order.
class ElfSymbols {
 public:
  // Returns the symbols of a file. `start` is the address at which the file's first byte is mapped.
  // Returns nullopt if there is no ELF file, or if the file has no dynamic symbols.
  static std::optional<ElfSymbols> Open(MemoryReader& memory, uint64_t start);

  // Returns the address of a defined symbol; nullopt if no symbol has that name.
  std::optional<uint64_t> Find(std::string_view name);

 private:
  explicit ElfSymbols(MemoryReader& memory) : memory_(&memory) {}
  bool ReadDynamic(uint64_t dynamic, uint64_t bytes);
  std::optional<uint64_t> ReadSymbol(uint32_t index, std::string_view name);

  MemoryReader* memory_;
  uint64_t bias_ = 0;  // address at which the file's virtual address 0 is mapped
  uint64_t symbols_ = 0;
  uint64_t names_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace dslaunch
