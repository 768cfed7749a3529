// Divides tensors that all ranks hold among the ranks that write them. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

struct TensorExtent {
  int64_t elements = 0;
  int64_t element_bytes = 0;
};

// The elements [start, end) of a rank's part of a tensor, counted in the order of the part.
struct ElementRange {
  int64_t start = 0;
  int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

// Minimum size of a share in bytes. A smaller share does not justify a separate file, and smaller
// tensors are not cut.
inline constexpr int64_t kMinShareBytes = int64_t{1} << 20;
// Minimum size in bytes of a share of a copy in memory. A smaller share does not justify the
// broadcast that restores it.
inline constexpr int64_t kMinCopyShareBytes = int64_t{1} << 16;

// Returns the number of ranks, from rank 0, that write a share: as many as possible without shares
// smaller than `min_share_bytes`, but at least one.
int CountWriters(const std::vector<TensorExtent>& tensors, int world_size,
                 int64_t min_share_bytes = kMinShareBytes);

// Returns the share of `rank` in each tensor; nullopt if the rank has no share. The shares of all
// writers contain every element once, and their sizes differ by at most min_share_bytes. The
// concatenation of all tensors is cut into equal parts, and a cut inside a small tensor moves to
// the nearer end of that tensor.
std::vector<std::optional<ElementRange>> ShareOut(const std::vector<TensorExtent>& tensors,
                                                  int rank, int writers,
                                                  int64_t min_share_bytes = kMinShareBytes);

}  // namespace dslaunch
