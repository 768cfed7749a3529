// Visits rows of logits in parts, because an fp32 copy of all rows would be too large.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace dslaunch {

// Maximum size in bytes of the fp32 copy of a part.
inline constexpr int64_t kPartBytes = int64_t{64} << 20;

// Calls `visit` with the first row and the number of rows of each part of `logits`, [rows,
// columns].
template <typename Visit>
void ForEachRowPart(const at::Tensor& logits, const Visit& visit) {
  const int64_t row_bytes = logits.size(1) * static_cast<int64_t>(sizeof(float));
  const int64_t rows = std::max<int64_t>(1, kPartBytes / std::max<int64_t>(1, row_bytes));
  for (int64_t first = 0; first < logits.size(0); first += rows) {
    visit(first, std::min(rows, logits.size(0) - first));
  }
}

}  // namespace dslaunch
