#include "agent/host/mpi_use.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/split_lines.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxDynamicBytes = 64 * 1024;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxSegments = 1024;
constexpr size_t kMaxScriptBytes = 1 << 20;
constexpr char kPmixLibrary[] = "libpmix.so.2";
// Of Debian, of Fedora and its kin, and of what is built by hand.
constexpr const char* kLibraryFolders[] = {"/usr/lib/x86_64-linux-gnu",
                                           "/usr/lib/aarch64-linux-gnu",
                                           "/lib/x86_64-linux-gnu",
                                           "/lib/aarch64-linux-gnu",
                                           "/usr/lib64",
                                           "/lib64",
                                           "/usr/local/lib",
                                           "/usr/local/lib64",
                                           "/usr/lib"};

// Open does not wait, as it would for a pipe's writer.
UniqueFd OpenFile(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file && (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))) file.Reset();
  return file;
}

// What of `size` bytes is there.
std::string ReadAt(const UniqueFd& file, size_t size, uint64_t offset) {
  std::string bytes(size, '\0');
  const ssize_t n = ::pread(file.get(), bytes.data(), size, static_cast<off_t>(offset));
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return bytes;
}

template <class T>
std::vector<T> ReadTable(const UniqueFd& file, size_t count, uint64_t offset) {
  const std::string bytes = ReadAt(file, count * sizeof(T), offset);
  std::vector<T> table(bytes.size() / sizeof(T));
  if (!table.empty()) std::memcpy(table.data(), bytes.data(), table.size() * sizeof(T));
  return table;
}

// The first of the libraries that an ELF file is linked to (DT_NEEDED) which is one of MPI's.
std::string MpiLibraryOf(const std::string& path) {
  const UniqueFd file = OpenFile(path);
  if (!file) return "";
  const std::vector<ElfW(Ehdr)> header = ReadTable<ElfW(Ehdr)>(file, 1, 0);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      header[0].e_phentsize != sizeof(ElfW(Phdr)))
    return "";
  const std::vector<ElfW(Phdr)> segments = ReadTable<ElfW(Phdr)>(
      file, std::min<size_t>(header[0].e_phnum, kMaxSegments), header[0].e_phoff);
  const auto dynamic = std::ranges::find(segments, ElfW(Word){PT_DYNAMIC}, &ElfW(Phdr)::p_type);
  if (dynamic == segments.end()) return "";
  const std::vector<ElfW(Dyn)> entries = ReadTable<ElfW(Dyn)>(
      file, std::min<size_t>(dynamic->p_filesz, kMaxDynamicBytes) / sizeof(ElfW(Dyn)),
      dynamic->p_offset);
  const auto names = std::ranges::find(entries, DT_STRTAB, &ElfW(Dyn)::d_tag);
  if (names == entries.end()) return "";
  const auto holds_names = [at = names->d_un.d_ptr](const ElfW(Phdr) & segment) {
    return segment.p_type == PT_LOAD && at >= segment.p_vaddr &&
           at - segment.p_vaddr < segment.p_filesz;
  };
  const auto load = std::ranges::find_if(segments, holds_names);
  if (load == segments.end()) return "";
  const uint64_t names_at = load->p_offset + (names->d_un.d_ptr - load->p_vaddr);
  for (const ElfW(Dyn) & entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag != DT_NEEDED) continue;
    const std::string bytes = ReadAt(file, kMaxNameBytes, names_at + entry.d_un.d_val);
    std::string name = bytes.substr(0, bytes.find('\0'));
    if (name.starts_with("libmpi")) return name;  // also libmpich, libmpi_cxx, libmpifort
  }
  return "";
}

// Of the script's own code; what a function imports may never be reached.
bool ImportsMpi4py(const std::string& path) {
  const UniqueFd file = OpenFile(path);
  if (!file) return false;
  const std::string source = ReadAt(file, kMaxScriptBytes, 0);
  return std::ranges::any_of(SplitLines(source), [](std::string_view line) {
    return line.starts_with("import mpi4py") || line.starts_with("from mpi4py");
  });
}

}  // namespace

std::string MpiUse(const ResolvedProgram& program) {
  if (program.argv.empty()) return "";
  std::string library = MpiLibraryOf(program.argv.front());
  if (!library.empty()) return library;
  const auto script = std::ranges::find_if(
      program.argv, [](const std::string& word) { return word.ends_with(".py"); });
  if (script == program.argv.end()) return "";
  const bool is_absolute = script->starts_with('/');
  return ImportsMpi4py(is_absolute ? *script : program.cwd + "/" + *script) ? "mpi4py" : "";
}

std::string PmixLibraryFolder(const Environment& environment) {
  const auto has_library = [](const std::string& folder) {
    return folder.starts_with('/') && ::access((folder + "/" + kPmixLibrary).c_str(), R_OK) == 0;
  };
  const char* const path = FindVariable(environment, "LD_LIBRARY_PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string folder(rest.substr(0, rest.find(':')));
    if (has_library(folder)) return folder;
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  const auto found = std::ranges::find_if(kLibraryFolders, has_library);
  return found == std::end(kLibraryFolders) ? "" : *found;
}

}  // namespace dslaunch
