#include "agent/stacks/elf_symbols.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace dslaunch {
namespace {

constexpr uint16_t kMaxSegments = 64;
constexpr uint64_t kMaxDynamicEntries = 256;
constexpr uint32_t kMaxChain = 4096;  // limit of the number of symbols in one bucket
constexpr size_t kMaxNameBytes = 64;
constexpr uint64_t kPage = 4096;

uint32_t HashOf(std::string_view name) {
  uint32_t hash = 5381;  // initial value of the hash that DT_GNU_HASH defines
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

}  // namespace

std::optional<ElfSymbols> ElfSymbols::Open(MemoryReader& memory, uint64_t start) {
  const auto header = memory.ReadValue<Elf64_Ehdr>(start);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  ElfSymbols symbols(memory);
  uint64_t dynamic = 0;
  uint64_t dynamic_bytes = 0;
  bool is_placed = false;
  for (uint16_t i = 0; i < std::min(header->e_phnum, kMaxSegments); ++i) {
    const auto segment =
        memory.ReadValue<Elf64_Phdr>(start + header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return std::nullopt;
    if (segment->p_type == PT_LOAD && segment->p_offset < kPage && !is_placed) {
      symbols.bias_ = start - (segment->p_vaddr - segment->p_offset);
      is_placed = true;
    } else if (segment->p_type == PT_DYNAMIC) {
      dynamic = segment->p_vaddr;
      dynamic_bytes = segment->p_memsz;
    }
  }
  if (!is_placed || dynamic == 0 || !symbols.ReadDynamic(symbols.bias_ + dynamic, dynamic_bytes))
    return std::nullopt;
  return symbols;
}

bool ElfSymbols::ReadDynamic(uint64_t dynamic, uint64_t bytes) {
  const uint64_t entries = std::min(bytes / sizeof(Elf64_Dyn), kMaxDynamicEntries);
  for (uint64_t i = 0; i < entries; ++i) {
    const auto entry = memory_->ReadValue<Elf64_Dyn>(dynamic + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) break;
    // glibc makes these addresses absolute and musl does not, so both forms are accepted.
    const uint64_t value = entry->d_un.d_ptr;
    const uint64_t address = value < bias_ ? value + bias_ : value;
    if (entry->d_tag == DT_SYMTAB) symbols_ = address;
    if (entry->d_tag == DT_STRTAB) names_ = address;
    if (entry->d_tag == DT_GNU_HASH) hash_ = address;
  }
  return symbols_ != 0 && names_ != 0 && hash_ != 0;
}

std::optional<uint64_t> ElfSymbols::Find(std::string_view name) {
  struct Header {
    uint32_t buckets, first_symbol, bloom_words, bloom_shift;
  };
  const auto header = memory_->ReadValue<Header>(hash_);
  if (!header || header->buckets == 0) return std::nullopt;
  const uint32_t hash = HashOf(name);
  const uint64_t buckets = hash_ + sizeof(Header) + uint64_t{8} * header->bloom_words;
  const auto first = memory_->ReadValue<uint32_t>(buckets + uint64_t{4} * (hash % header->buckets));
  if (!first || *first < header->first_symbol) return std::nullopt;
  const uint64_t chains = buckets + uint64_t{4} * header->buckets;
  for (uint32_t index = *first; index - *first < kMaxChain; ++index) {
    const auto chain =
        memory_->ReadValue<uint32_t>(chains + uint64_t{4} * (index - header->first_symbol));
    if (!chain) return std::nullopt;
    if ((*chain | 1) == (hash | 1)) {
      if (const auto address = ReadSymbol(index, name)) return address;
    }
    if ((*chain & 1) != 0) return std::nullopt;  // the lowest bit marks the end of the bucket
  }
  return std::nullopt;
}

std::optional<uint64_t> ElfSymbols::ReadSymbol(uint32_t index, std::string_view name) {
  const auto symbol = memory_->ReadValue<Elf64_Sym>(symbols_ + uint64_t{index} * sizeof(Elf64_Sym));
  if (!symbol || symbol->st_shndx == SHN_UNDEF || name.size() >= kMaxNameBytes) return std::nullopt;
  std::array<char, kMaxNameBytes> found = {};
  if (!memory_->Read(names_ + symbol->st_name,
                     std::as_writable_bytes(std::span(found).first(name.size() + 1))))
    return std::nullopt;
  if (std::string_view(found.data(), name.size() + 1) != std::string(name) + '\0')
    return std::nullopt;
  return bias_ + symbol->st_value;
}

}  // namespace dslaunch
