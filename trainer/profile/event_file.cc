#include "trainer/profile/event_file.h"

#include <array>
#include <bit>
#include <cstring>

namespace dslaunch {
namespace {

constexpr uint32_t kCastagnoli = 0x82f63b78;  // polynomial of CRC-32C with its bits reversed

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

// Masks a CRC as TensorFlow does, so that the CRC of data that contains CRCs still detects errors
// (tensorflow/tsl/lib/hash/crc32c.h).
uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <class T>
std::string LittleEndian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// The encodings of values in protobuf's wire format. The key of a field consists of the field's
// number and the encoding of its value.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string Key(uint32_t field, WireType type) { return Varint(field << 3 | type); }

std::string BytesField(uint32_t field, std::string_view bytes) {
  return Key(field, kBytes) + Varint(bytes.size()) + std::string(bytes);
}

std::string WallTime(double wall_time_s) { return Key(1, kFixed64) + LittleEndian(wall_time_s); }

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string EventRecord(std::string_view event) {
  const std::string length = LittleEndian(static_cast<uint64_t>(event.size()));
  return length + LittleEndian(Masked(Crc32c(length))) + std::string(event) +
         LittleEndian(Masked(Crc32c(event)));
}

std::string VersionEvent(double wall_time_s) {
  return WallTime(wall_time_s) + BytesField(3, "brain.Event:2");
}

std::string ScalarEvent(double wall_time_s, int64_t step, std::string_view tag, float value) {
  const std::string scalar = BytesField(1, tag) + Key(2, kFixed32) + LittleEndian(value);
  return WallTime(wall_time_s) + Key(2, kVarint) + Varint(static_cast<uint64_t>(step)) +
         BytesField(5, BytesField(1, scalar));
}

}  // namespace dslaunch
