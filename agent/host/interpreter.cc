#include "agent/host/interpreter.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/os/proc_text.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

constexpr std::string_view kBlanks = " \t";

std::optional<Interpreter> OfScript(std::string_view head) {
  head.remove_prefix(2);
  const size_t end = head.find('\n');
  if (end == std::string_view::npos)
    return std::nullopt;  // the kernel refuses such a file with its own error
  std::string_view line = head.substr(0, end);
  Interpreter interpreter;
  interpreter.ends_with_return = line.ends_with('\r');
  if (interpreter.ends_with_return) line.remove_suffix(1);
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  interpreter.path = line.substr(0, line.find_first_of(kBlanks));
  if (interpreter.path.empty() || interpreter.path.find('\0') != std::string::npos)
    return std::nullopt;
  return interpreter;
}

template <class Struct>
std::optional<Struct> ReadAt(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Struct)) return std::nullopt;
  Struct value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::optional<Interpreter> OfElf(std::string_view head) {
  const auto elf = ReadAt<Elf64_Ehdr>(head, 0);
  if (!elf || elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  for (uint64_t i = 0; i < elf->e_phnum; ++i) {
    if (elf->e_phoff > head.size()) return std::nullopt;
    const auto part = ReadAt<Elf64_Phdr>(head, elf->e_phoff + i * sizeof(Elf64_Phdr));
    if (!part) return std::nullopt;
    if (part->p_type != PT_INTERP) continue;
    if (part->p_offset > head.size() || part->p_filesz > head.size() - part->p_offset)
      return std::nullopt;
    std::string_view path = head.substr(part->p_offset, part->p_filesz);
    path = path.substr(0, path.find('\0'));
    if (path.empty()) return std::nullopt;
    return Interpreter{.path = std::string(path), .is_loader = true};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Interpreter> ReadInterpreter(std::string_view head) {
  if (head.starts_with("#!")) return OfScript(head);
  return head.starts_with(ELFMAG) ? OfElf(head) : std::nullopt;
}

Result<void> CheckInterpreter(const std::string& path, const std::string& cwd,
                              const std::string& name, const std::string& node) {
  const std::optional<Interpreter> interpreter =
      ReadInterpreter(ReadBeginning(path, kMaxInterpreterHead));
  if (!interpreter) return {};
  const std::string shown = SanitizeForTerminal(interpreter->path);
  const std::string program = node + ": program '" + name + "' cannot be started: ";
  if (interpreter->ends_with_return) {
    return Error{ExitCode::kCannotExecute,
                 program +
                     "its first line ends with a carriage return, which the kernel takes for "
                     "a part of the name; remove the carriage returns: sed -i 's/\\r$//' " +
                     name};
  }
  const std::string place =
      interpreter->path.starts_with('/') ? interpreter->path : cwd + "/" + interpreter->path;
  if (access(place.c_str(), X_OK) == 0) return {};
  return Error{ExitCode::kCannotExecute,
               program + (interpreter->is_loader
                              ? "its loader " + shown +
                                    " is not there; it was built for another "
                                    "system"
                              : "its interpreter " + shown +
                                    " (in its first line) is not there or not executable")};
}

}  // namespace dslaunch
