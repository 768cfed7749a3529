// Who writes what of the tensors that all ranks hold. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

struct TensorExtent {
  int64_t elements = 0;
  int64_t element_bytes = 0;
};

// Elements [start, end) of a tensor taken as one row.
struct ElementRange {
  int64_t start = 0;
  int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

// Less is not worth a file of its own, and tensors smaller than this are not cut.
inline constexpr int64_t kMinShareBytes = int64_t{1} << 20;

// How many ranks write something, from 0 on: fewer than there are where shares would be smaller
// than kMinShareBytes, but always one.
int CountWriters(const std::vector<TensorExtent>& tensors, int world_size);

// What `rank` writes of each tensor; nullopt: nothing. The writers' shares are together every
// element once, and as large as each other but for kMinShareBytes: the tensors are laid one after
// the other and cut into equal rows, where a cut in a small tensor moves to its nearer end.
std::vector<std::optional<ElementRange>> ShareOut(const std::vector<TensorExtent>& tensors,
                                                  int rank, int writers);

}  // namespace dslaunch
