// Divides the tensors that all ranks hold among the ranks that write them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch {

struct TensorExtent {
  int64_t elements = 0;
  int64_t element_bytes = 0;
};

// Elements [start, end) of a tensor as one row.
struct ElementRange {
  int64_t start = 0;
  int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

// A smaller share is not worth a file of its own, and smaller tensors are not cut.
inline constexpr int64_t kMinShareBytes = int64_t{1} << 20;

// How many ranks, from rank 0 on, write something: fewer than there are if shares would be smaller
// than kMinShareBytes, but at least one.
int CountWriters(const std::vector<TensorExtent>& tensors, int world_size);

// What `rank` writes of each tensor; nullopt: nothing. The shares of all writers together contain
// every element once, and their sizes differ by at most kMinShareBytes: all tensors form one row,
// which is cut into equal parts; a cut inside a small tensor moves to its nearer end.
std::vector<std::optional<ElementRange>> ShareOut(const std::vector<TensorExtent>& tensors,
                                                  int rank, int writers);

}  // namespace dslaunch
