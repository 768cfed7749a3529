#include "trainer/checkpoint/write_plan.h"

#include <algorithm>
#include <utility>

namespace dslaunch {
namespace {

// A position in the concatenation of all tensors: the index of the tensor, and the element in that
// tensor.
using Place = std::pair<size_t, int64_t>;

int64_t BytesOf(const TensorExtent& tensor) { return tensor.elements * tensor.element_bytes; }

int64_t BytesOf(const std::vector<TensorExtent>& tensors) {
  int64_t bytes = 0;
  for (const TensorExtent& tensor : tensors) bytes += BytesOf(tensor);
  return bytes;
}

// Returns the position in the tensors at which the share of `rank` begins.
Place Cut(const std::vector<TensorExtent>& tensors, int64_t total_bytes, int rank, int writers,
          int64_t min_share_bytes) {
  // The product total_bytes * rank could overflow, so the quotient and the remainder are multiplied
  // separately.
  int64_t rest = total_bytes / writers * rank + total_bytes % writers * rank / writers;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = BytesOf(tensors[i]);
    if (rest >= bytes) {
      rest -= bytes;
    } else if (bytes >= min_share_bytes) {
      return {i, rest / tensors[i].element_bytes};
    } else {
      return {rest * 2 < bytes ? i : i + 1, 0};
    }
  }
  return {tensors.size(), 0};
}

}  // namespace

int CountWriters(const std::vector<TensorExtent>& tensors, int world_size,
                 int64_t min_share_bytes) {
  return static_cast<int>(
      std::clamp<int64_t>(BytesOf(tensors) / min_share_bytes, 1, int64_t{world_size}));
}

std::vector<std::optional<ElementRange>> ShareOut(const std::vector<TensorExtent>& tensors,
                                                  int rank, int writers, int64_t min_share_bytes) {
  std::vector<std::optional<ElementRange>> shares(tensors.size());
  if (rank >= writers) return shares;
  const int64_t total_bytes = BytesOf(tensors);
  const Place begin = Cut(tensors, total_bytes, rank, writers, min_share_bytes);
  const Place end = Cut(tensors, total_bytes, rank + 1, writers, min_share_bytes);
  for (size_t i = begin.first; i < tensors.size() && i <= end.first; ++i) {
    const ElementRange range = {i == begin.first ? begin.second : 0,
                                i == end.first ? end.second : tensors[i].elements};
    if (range.start < range.end) shares[i] = range;
  }
  return shares;
}

}  // namespace dslaunch
