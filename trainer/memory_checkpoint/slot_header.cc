#include "trainer/memory_checkpoint/slot_header.h"

#include <bit>
#include <cstring>

#include "trainer/base/crc32.h"

namespace dslaunch {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'D', 'S', 'L', 'C', 'O', 'P', 'Y', '1'};

struct Fields {
  std::array<char, 8> magic;
  uint64_t attempt;
  int64_t step;
  uint32_t rank;
  uint32_t world_size;
  uint64_t layout;
  uint64_t bytes;
  uint32_t crc32;
  uint32_t header_crc32;  // checksum of the members above
};
static_assert(sizeof(Fields) == kSlotHeaderFields);

uint32_t HeaderCrc(const Fields& fields) { return Crc32(&fields, offsetof(Fields, header_crc32)); }

}  // namespace

std::array<std::byte, kSlotHeaderFields> EncodeSlotHeader(const SlotHeader& header) {
  Fields fields = {kMagic,       header.id.attempt, header.id.step,
                   header.rank,  header.world_size, header.layout,
                   header.bytes, header.crc32,      0};
  fields.header_crc32 = HeaderCrc(fields);
  return std::bit_cast<std::array<std::byte, kSlotHeaderFields>>(fields);
}

std::optional<SlotHeader> DecodeSlotHeader(std::span<const std::byte> slot) {
  if (slot.size() < kSlotHeaderBytes) return std::nullopt;
  Fields fields;
  std::memcpy(&fields, slot.data(), sizeof fields);
  if (fields.magic != kMagic || fields.header_crc32 != HeaderCrc(fields)) return std::nullopt;
  if (fields.step < 0 || fields.bytes == 0 || fields.bytes > slot.size() - kSlotHeaderBytes)
    return std::nullopt;
  return SlotHeader{{fields.step, fields.attempt},
                    fields.rank,
                    fields.world_size,
                    fields.layout,
                    fields.bytes,
                    fields.crc32};
}

uint64_t LayoutHash(std::string_view layout) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : layout) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace dslaunch
