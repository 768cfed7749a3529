// Defines the layout of a copy of tensors: the length of a text (8 bytes, little-endian), the text,
// then the tensors. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace dslaunch {

struct CopyLayout {
  std::vector<uint64_t> offsets;  // byte offset of each tensor in the copy
  uint64_t bytes = 0;             // size of the whole copy
};

// Returns the layout of a copy. Each tensor begins at a multiple of 64 bytes. The space of the text
// is rounded up, so that a slightly longer text needs no more space.
CopyLayout LayOutCopy(size_t text_bytes, const std::vector<uint64_t>& tensor_bytes);

// Writes all bytes that precede the first tensor. Precondition: `copy` has the bytes of LayOutCopy
// for the size of `text`.
void WriteCopyText(std::string_view text, std::span<std::byte> copy);

// Returns the text of a copy, whose bytes are not trusted; nullopt if `copy` is shorter than its
// text.
std::optional<std::string_view> ReadCopyText(std::span<const std::byte> copy);

}  // namespace dslaunch
