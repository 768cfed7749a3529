// Divides tensors that all ranks hold among the ranks that write them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

struct TensorExtent {
  int64_t elements = 0;
  int64_t element_bytes = 0;
};

// Elements [start, end) of a rank's part of a tensor, in the order of the part.
struct ElementRange {
  int64_t start = 0;
  int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

// Smaller shares are not worth a file of their own, and smaller tensors are not cut.
inline constexpr int64_t kMinShareBytes = int64_t{1} << 20;
// A smaller share of a copy in memory is not worth the broadcast that restores it.
inline constexpr int64_t kMinCopyShareBytes = int64_t{1} << 16;

// Returns the number of ranks, counted from rank 0, that write a share: so many that shares are not
// smaller than `min_share_bytes`, but at least one.
int CountWriters(const std::vector<TensorExtent>& tensors, int world_size,
                 int64_t min_share_bytes = kMinShareBytes);

// Returns the share of `rank` in each tensor, nullopt if it has none. The shares of all writers
// contain every element once, and their sizes differ by at most min_share_bytes: all tensors form
// one row, which is cut into equal parts; a cut inside a small tensor moves to the nearer end of
// that tensor.
std::vector<std::optional<ElementRange>> ShareOut(const std::vector<TensorExtent>& tensors,
                                                  int rank, int writers,
                                                  int64_t min_share_bytes = kMinShareBytes);

}  // namespace dslaunch
