#include "trainer/memory_checkpoint/copy_layout.h"

#include <bit>
#include <cstring>

namespace dslaunch {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kTensorUnit = 64;
// Numbers in the text grow during a run, so the size of the text is rounded up to a multiple of
// this number of bytes.
constexpr uint64_t kTextUnit = 16384;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

CopyLayout LayOutCopy(size_t text_bytes, const std::vector<uint64_t>& tensor_bytes) {
  CopyLayout layout;
  layout.bytes = RoundUp(sizeof(uint64_t) + text_bytes, kTextUnit);
  for (const uint64_t bytes : tensor_bytes) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += RoundUp(bytes, kTensorUnit);
  }
  return layout;
}

void WriteCopyText(std::string_view text, std::span<std::byte> copy) {
  const uint64_t bytes = text.size();
  std::memcpy(copy.data(), &bytes, sizeof bytes);
  std::memcpy(copy.data() + sizeof bytes, text.data(), text.size());
}

std::optional<std::string_view> ReadCopyText(std::span<const std::byte> copy) {
  uint64_t bytes = 0;
  if (copy.size() < sizeof bytes) return std::nullopt;
  std::memcpy(&bytes, copy.data(), sizeof bytes);
  if (bytes > copy.size() - sizeof bytes) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(copy.data()) + sizeof bytes, bytes);
}

}  // namespace dslaunch
