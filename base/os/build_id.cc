#include "base/os/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/text/hex.h"
#include "base/unique_fd.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxNoteBytes = 64 * 1024;

// Returns the build ID in the notes of one segment; empty if the notes contain none.
std::string FindBuildId(std::string_view notes, size_t alignment) {
  const size_t align = alignment == 8 ? 8 : 4;
  const auto padded = [align](size_t n) { return (n + align - 1) / align * align; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    const size_t name_at = sizeof header;
    const size_t content_at = padded(name_at + header.n_namesz);
    const size_t end = padded(content_at + header.n_descsz);
    if (content_at + header.n_descsz > notes.size()) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        notes.substr(name_at, 4) == std::string_view("GNU", 4)) {
      return ToHex(notes.substr(content_at, header.n_descsz));
    }
    if (end >= notes.size()) break;
    notes.remove_prefix(end);
  }
  return "";
}

bool ReadAt(int fd, void* out, size_t size, off_t offset) {
  return ::pread(fd, out, size, offset) == static_cast<ssize_t>(size);
}

}  // namespace

std::string ElfMachine(std::string_view head) {
  if (head.size() < kElfMachineHead || !head.starts_with(ELFMAG)) return "";
  const bool is_little = head[EI_DATA] == ELFDATA2LSB;
  const bool is_64_bit = head[EI_CLASS] == ELFCLASS64;
  const auto low = static_cast<unsigned char>(head[is_little ? 18 : 19]);
  const auto high = static_cast<unsigned char>(head[is_little ? 19 : 18]);
  switch (high << 8 | low) {
    case EM_X86_64:
      // A 32-bit file of EM_X86_64 has 32-bit pointers (x32), so it counts as a 32-bit machine.
      return is_64_bit ? "x86_64" : "i686";
    case EM_386:
      return "i686";
    case EM_AARCH64:
      return is_little ? "aarch64" : "aarch64_be";
    case EM_ARM:
      return "armv7l";
    case EM_PPC64:
      return is_little ? "ppc64le" : "ppc64";
    case EM_RISCV:
      return is_64_bit ? "riscv64" : "riscv32";
    case EM_S390:
      return is_64_bit ? "s390x" : "s390";
    default:
      return "";
  }
}

std::string FormatHello(std::string_view nonce, std::string_view build_id) {
  return std::string(kHelloMagic).append(nonce).append(" ").append(build_id).append("\n");
}

Result<ElfIdentity> ReadElfIdentity(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Error{ExitCode::kBadInput, "cannot open " + path + ": " + std::strerror(errno)};
  ElfW(Ehdr) header;
  if (!ReadAt(fd.get(), &header, sizeof header, 0) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(ElfW(Phdr))) {
    return Error{ExitCode::kBadInput, path + " is not a program for this machine"};
  }
  ElfIdentity identity{"", ElfMachine({reinterpret_cast<const char*>(&header), sizeof header})};
  for (int i = 0; i < header.e_phnum && identity.build_id.empty(); ++i) {
    ElfW(Phdr) segment;
    const off_t at = static_cast<off_t>(header.e_phoff + i * sizeof segment);
    if (!ReadAt(fd.get(), &segment, sizeof segment, at)) break;
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) continue;
    std::vector<char> notes(segment.p_filesz);
    if (!ReadAt(fd.get(), notes.data(), notes.size(), static_cast<off_t>(segment.p_offset))) break;
    identity.build_id = FindBuildId({notes.data(), notes.size()}, segment.p_align);
  }
  if (identity.build_id.empty()) {
    return Error{ExitCode::kBadInput, path + " has no build id; link it with -Wl,--build-id=sha1"};
  }
  return identity;
}

std::string OwnBuildId() {
  std::string build_id;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
          auto& found = *static_cast<std::string*>(out);
          found = FindBuildId({notes, segment.p_memsz}, segment.p_align);
          if (!found.empty()) break;
        }
        return 1;  // nonzero stops after the first object, which is the program itself
      },
      &build_id);
  return build_id;
}

}  // namespace dslaunch
