#include "base/os/exported_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errno_text.h"
#include "base/text/sanitize.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

// Limit of the size of symbol and string tables. Even a library with thousands of classes has much
// smaller tables.
constexpr size_t kMaxTableBytes = size_t{64} << 20;
constexpr size_t kMaxNames = 10'000;

// Returns `size` bytes at `offset`, or as many as the file has. Returns an empty text if `size`
// exceeds kMaxTableBytes or `offset` is beyond the end of the file.
std::string ReadAt(const UniqueFd& file, uint64_t size, uint64_t offset) {
  struct stat info {};
  if (size > kMaxTableBytes || ::fstat(file.get(), &info) != 0 || info.st_size < 0 ||
      offset > static_cast<uint64_t>(info.st_size))
    return "";
  std::string bytes(std::min(size, static_cast<uint64_t>(info.st_size) - offset), '\0');
  const ssize_t n = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return bytes;
}

template <class T>
std::vector<T> ReadTable(const UniqueFd& file, uint64_t bytes_wanted, uint64_t offset) {
  const std::string bytes = ReadAt(file, bytes_wanted, offset);
  std::vector<T> table(bytes.size() / sizeof(T));
  if (!table.empty()) std::memcpy(table.data(), bytes.data(), table.size() * sizeof(T));
  return table;
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

}  // namespace

Result<std::vector<std::string>> ExportedSymbols(const std::string& path, std::string_view prefix) {
  const Error no_library = {ExitCode::kBadInput, Truncate(path) + ": not a shared library"};
  // Without O_NONBLOCK, open() would wait for the writer if the path is a pipe.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    return Error{ExitCode::kBadInput, Truncate(path) + ": cannot be read: " + ErrnoText(errno)};
  if (!S_ISREG(info.st_mode)) return no_library;
  const std::vector<ElfW(Ehdr)> header = ReadTable<ElfW(Ehdr)>(file, sizeof(ElfW(Ehdr)), 0);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      header[0].e_ident[EI_CLASS] != (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32) ||
      header[0].e_shentsize != sizeof(ElfW(Shdr)))
    return no_library;
  const std::vector<ElfW(Shdr)> sections = ReadTable<ElfW(Shdr)>(
      file, uint64_t{header[0].e_shnum} * sizeof(ElfW(Shdr)), header[0].e_shoff);
  std::vector<std::string> names;
  const auto dynamic = std::ranges::find(sections, ElfW(Word){SHT_DYNSYM}, &ElfW(Shdr)::sh_type);
  if (dynamic == sections.end() || dynamic->sh_link >= sections.size()) return names;
  const ElfW(Shdr)& texts = sections[dynamic->sh_link];
  const std::string text = ReadAt(file, texts.sh_size, texts.sh_offset);
  for (const ElfW(Sym) & symbol :
       ReadTable<ElfW(Sym)>(file, dynamic->sh_size, dynamic->sh_offset)) {
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= text.size()) continue;
    const std::string_view rest = std::string_view(text).substr(symbol.st_name);
    if (!rest.starts_with(prefix)) continue;
    const std::string_view name = rest.substr(0, rest.find('\0')).substr(prefix.size());
    if (IsIdentifier(name) && names.size() < kMaxNames) names.emplace_back(name);
  }
  std::ranges::sort(names);
  const auto again = std::ranges::unique(names);
  names.erase(again.begin(), again.end());
  return names;
}

}  // namespace dslaunch
