#include "agent/stacks/code_reader.h"

#include <array>
#include <cstring>

namespace dslaunch {
namespace {

// Offsets of members in Python objects. Every object has kType.
constexpr uint64_t kType = 8;
constexpr uint64_t kVariableSize = 16;
constexpr uint64_t kBytesContent = 32;

constexpr size_t kTypeNameBytes = 16;
constexpr uint64_t kMaxTextLength = 4096;
constexpr uint64_t kMaxTableBytes = 256 << 10;
constexpr uint64_t kMaxBytecodeUnits = 64 << 20;
constexpr int kFirstWithBytecode = 11;

// The state of a Python string: the size of a character in bytes, and two flags.
struct TextState {
  unsigned kind = 0;
  bool compact = false;
  bool ascii = false;
};

// Parses the state of a Python string. Builds of CPython use 2, 8 or 16 bits for "interned", of
// which at most the lowest two are ever set. The kind is never 0, so the first position with a kind
// is the right one.
TextState ParseTextState(uint32_t state) {
  constexpr unsigned kInternedBits[] = {2, 8, 16};
  constexpr uint32_t kKindMask = 7, kCompact = 8, kAscii = 16;
  for (const unsigned shift : kInternedBits) {
    const uint32_t flags = state >> shift;
    if ((flags & kKindMask) != 0)
      return {flags & kKindMask, (flags & kCompact) != 0, (flags & kAscii) != 0};
  }
  return {};
}

void AppendUtf8(std::string& text, uint32_t c) {
  constexpr uint32_t kEscapedFirst = 0xdc80, kEscapedLast = 0xdcff;
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | (c >> 6));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c >= kEscapedFirst && c <= kEscapedLast) {
    text += static_cast<char>(c & 0xff);  // byte of a file name that is not UTF-8
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | (c >> 12));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | ((c >> 18) & 7));
    text += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

}  // namespace

std::string CodeReader::TypeName(uint64_t object) {
  const auto type = memory_.ReadValue<uint64_t>(object + kType);
  if (!type) return "";
  const auto known = type_names_.find(*type);
  if (known != type_names_.end()) return known->second;
  const auto name = memory_.ReadValue<uint64_t>(*type + layout_.offsets.type_name);
  if (!name) return "";
  const auto text = memory_.ReadValue<std::array<char, kTypeNameBytes>>(*name);
  if (!text) return "";
  return type_names_[*type] = std::string(text->data(), strnlen(text->data(), text->size()));
}

CodeReader::Kind CodeReader::KindOf(uint64_t address) {
  const std::string name = TypeName(address);
  if (name.empty()) return Kind::kUnreadable;
  if (name == "code") return Kind::kCode;
  return name == "NoneType" ? Kind::kNone : Kind::kOther;
}

const CodeObject* CodeReader::Read(uint64_t address) {
  const auto known = codes_.find(address);
  if (known != codes_.end()) return &known->second;
  std::optional<CodeObject> code = ReadCode(address);
  if (!code) return nullptr;
  return &(codes_[address] = *std::move(code));
}

std::optional<CodeObject> CodeReader::ReadCode(uint64_t address) {
  if (KindOf(address) != Kind::kCode) return std::nullopt;
  const PythonOffsets& at = layout_.offsets;
  const auto file = memory_.ReadValue<uint64_t>(address + at.code_file);
  const auto name = memory_.ReadValue<uint64_t>(address + at.code_name);
  const auto lines = memory_.ReadValue<uint64_t>(address + at.code_lines);
  const auto first_line = memory_.ReadValue<int32_t>(address + at.code_first_line);
  if (!file || !name || !lines || !first_line) return std::nullopt;
  CodeObject code;
  code.first_line = *first_line;
  if (layout_.minor >= kFirstWithBytecode) {
    const auto units = memory_.ReadValue<uint64_t>(address + kVariableSize);
    if (!units || *units > kMaxBytecodeUnits) return std::nullopt;
    code.bytecode = address + at.code_bytecode;
    code.bytecode_bytes = 2 * *units;
  }
  const std::optional<std::string> file_text = ReadText(*file);
  const std::optional<std::string> name_text = ReadText(*name);
  if (!file_text || !name_text || !ReadBytes(*lines, code.lines)) return std::nullopt;
  code.file = *file_text;
  code.function = *name_text;
  return code;
}

std::optional<std::string> CodeReader::ReadText(uint64_t object) {
  if (TypeName(object) != "str") return std::nullopt;
  struct Head {
    uint64_t count, type, length, hash;
    uint32_t state;
  };
  const auto head = memory_.ReadValue<Head>(object);
  if (!head || head->length > kMaxTextLength) return std::nullopt;
  const TextState state = ParseTextState(head->state);
  if (!state.compact || (state.kind != 1 && state.kind != 2 && state.kind != 4))
    return std::nullopt;
  std::vector<std::byte> bytes(head->length * state.kind);
  if (!memory_.Read(
          object + (state.ascii ? layout_.offsets.ascii_bytes : layout_.offsets.compact_bytes),
          bytes))
    return std::nullopt;
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += state.kind) {
    uint32_t c = 0;
    std::memcpy(&c, &bytes[i], state.kind);
    AppendUtf8(text, c);
  }
  return text;
}

bool CodeReader::ReadBytes(uint64_t object, std::vector<std::byte>& bytes) {
  if (TypeName(object) != "bytes") return false;
  const auto size = memory_.ReadValue<uint64_t>(object + kVariableSize);
  if (!size || *size > kMaxTableBytes) return false;
  bytes.resize(*size);
  return memory_.Read(object + kBytesContent, bytes);
}

}  // namespace dslaunch
