#include "base/pickle/pickle_writer.h"

#include <bit>
#include <cstring>

namespace dslaunch {
namespace {

template <class Number>
std::string LittleEndianBytes(Number number) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

}  // namespace

PickleWriter::PickleWriter() : bytes_("\x80\x02") {}
void PickleWriter::None() { bytes_ += 'N'; }
void PickleWriter::Bool(bool value) { bytes_ += value ? '\x88' : '\x89'; }

void PickleWriter::Int(int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    bytes_ += 'J' + LittleEndianBytes(static_cast<int32_t>(value));
  } else {
    bytes_ += "\x8a\x08" + LittleEndianBytes(value);
  }
}

void PickleWriter::Double(double value) {
  bytes_ += 'G' + LittleEndianBytes(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void PickleWriter::String(std::string_view text) {
  bytes_ += 'X' + LittleEndianBytes(static_cast<uint32_t>(text.size()));
  bytes_ += text;
}

void PickleWriter::BeginTuple() { bytes_ += '('; }
void PickleWriter::EndTuple() { bytes_ += 't'; }
void PickleWriter::BeginList() { bytes_ += "]("; }
void PickleWriter::EndList() { bytes_ += 'e'; }
void PickleWriter::BeginDict() { bytes_ += "}("; }
void PickleWriter::EndDict() { bytes_ += 'u'; }

void PickleWriter::Global(std::string_view module, std::string_view name) {
  bytes_ += 'c';
  bytes_ += module;
  bytes_ += '\n';
  bytes_ += name;
  bytes_ += '\n';
}

void PickleWriter::Reference() { bytes_ += 'Q'; }
void PickleWriter::Reduce() { bytes_ += 'R'; }
void PickleWriter::NewObject() { bytes_ += '\x81'; }
void PickleWriter::Build() { bytes_ += 'b'; }

std::string PickleWriter::Take() {
  bytes_ += '.';
  return std::move(bytes_);
}

}  // namespace dslaunch
