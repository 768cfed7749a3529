#include "agent/stacks/python_layout.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "agent/stacks/elf_symbols.h"

namespace dslaunch {
namespace {

// Returns the mapping of the first byte of the file that contains the interpreter; nullptr if that
// byte is not mapped.
const FileMapping* InterpreterFile(const std::vector<FileMapping>& maps) {
  for (const FileMapping& mapping : maps) {
    const std::string_view name = FileName(mapping.path);
    if (mapping.offset == 0 && name.starts_with("lib") && MinorOfName(name)) return &mapping;
  }
  const auto program = std::ranges::find(maps, uint64_t{0}, &FileMapping::offset);
  return program == maps.end() ? nullptr : &*program;
}

// Returns the minor version in Py_Version; nullopt if this symbol does not exist, as before Python
// 3.11.
std::optional<int> MinorOfSymbol(ElfSymbols& symbols, MemoryReader& memory) {
  const std::optional<uint64_t> address = symbols.Find("Py_Version");
  if (!address) return std::nullopt;
  const auto version = memory.ReadValue<uint32_t>(*address);
  constexpr uint32_t kMajorShift = 24, kMinorShift = 16, kByte = 0xff;
  if (!version || *version >> kMajorShift != 3) return std::nullopt;
  return static_cast<int>((*version >> kMinorShift) & kByte);
}

// Returns the minor version in the path of a mapped extension module,
// ".../python3.10/lib-dynload/..."; nullopt if no such module is mapped.
std::optional<int> MinorOfModules(const std::vector<FileMapping>& maps) {
  for (const FileMapping& mapping : maps) {
    constexpr std::string_view kFolder = "/python3.";
    const size_t at = mapping.path.find(kFolder);
    if (at == std::string::npos) continue;
    const size_t end = mapping.path.find('/', at + 1);
    if (end == std::string::npos) continue;
    if (auto minor = MinorOfName(std::string_view(mapping.path).substr(at + 1, end - at - 1)))
      return minor;
  }
  return std::nullopt;
}

Error NotRead(std::string reason) { return Error{ExitCode::kUnavailable, std::move(reason)}; }

}  // namespace

std::optional<int> MinorOfName(std::string_view file_name) {
  if (file_name.starts_with("lib")) file_name.remove_prefix(3);
  constexpr std::string_view kPython = "python3.";
  if (!file_name.starts_with(kPython)) return std::nullopt;
  file_name.remove_prefix(kPython.size());
  int minor = 0;
  const auto [end, status] =
      std::from_chars(file_name.data(), file_name.data() + file_name.size(), minor);
  if (status != std::errc()) return std::nullopt;
  return minor;
}

Result<std::optional<PythonLayout>> FindLayout(const std::vector<FileMapping>& maps,
                                               MemoryReader& memory) {
  const FileMapping* file = InterpreterFile(maps);
  if (file == nullptr) return std::optional<PythonLayout>();
  std::optional<ElfSymbols> symbols = ElfSymbols::Open(memory, file->start);
  const std::optional<uint64_t> runtime = symbols ? symbols->Find("_PyRuntime") : std::nullopt;
  if (!runtime) {
    if (!MinorOfName(FileName(file->path))) return std::optional<PythonLayout>();
    return NotRead(std::string(FileName(file->path)) + " exports no _PyRuntime");
  }
  PythonLayout layout = {.runtime = *runtime};
  const auto words = memory.ReadValue<DebugWords>(*runtime);
  if (!words) return NotRead("its _PyRuntime cannot be read");
  if (HasDebugCookie(*words)) {
    Result<PythonOffsets> offsets = OffsetsOf(*words);
    if (!offsets.ok()) return offsets.error();
    layout.minor = DebugMinor(*words).value_or(0);
    layout.offsets = *offsets;
    return std::optional(layout);
  }
  std::optional<int> minor = MinorOfSymbol(*symbols, memory);
  if (!minor) minor = MinorOfName(FileName(file->path));
  if (!minor) minor = MinorOfModules(maps);
  if (!minor) return NotRead("the version of its CPython was not found");
  const std::optional<PythonOffsets> offsets = TabledOffsets(*minor);
  if (!offsets) return NotRead("CPython 3." + std::to_string(*minor) + " is not known");
  layout.minor = *minor;
  layout.offsets = *offsets;
  return std::optional(layout);
}

}  // namespace dslaunch
