// Cuts and intersects parts of tensors (dslaunch/shard.h), and checks that parts cover a whole
// tensor. Pure functions that do not depend on LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "dslaunch/shard.h"

namespace dslaunch {

// Returns the part [begin, end) of dimension `dim` of a tensor of `shape`. Indices beyond the
// dimension are padding and belong to no shard. Precondition: 0 <= begin <= end. If one tensor
// stores several tensors side by side, `shape` separates them: for example, [C, 3, C] for GPT-2's
// q, k and v in [C, 3 * C].
Shard CutShard(const std::vector<int64_t>& shape, size_t dim, int64_t begin, int64_t end);

// Returns the elements [start, stop) of `part`, counted from its first element. Positions beyond
// its last element are padding and are left out.
Shard Slice(const Shard& part, int64_t start, int64_t stop);

// A block of a shard: consecutive rows of the same length.
struct ShardBlock {
  int64_t at = 0;  // position in the whole tensor of the first row's first element
  int64_t rows = 0;
  int64_t row = 0;  // number of elements in each row; rows begin Shard::pitch apart
};

// Returns the shard's elements as at most three blocks, in order: the end of a row, whole rows, and
// the beginning of a row. A contiguous shard is one row.
std::vector<ShardBlock> BlocksOf(const Shard& shard);

// Calls `f` in order for each run of elements that `a` and `b`, which are parts of the same tensor,
// have in common. The positions count from the first element of each part. The time is proportional
// to the number of rows of `b`, plus the number of rows of `a` that these touch.
using CommonRun = std::function<void(int64_t in_a, int64_t in_b, int64_t length)>;
void ForEachCommonRun(const Shard& a, const Shard& b, const CommonRun& f);

// The elements of one tensor in a range of the concatenation of several tensors.
struct ShardPiece {
  size_t tensor = 0;  // index of the tensor in the list of tensors
  Shard shard;
  int64_t at = 0;  // position of the piece's first element, counted from the beginning of the range
};

// Returns the pieces of tensors, in order, in the range [begin, end) of the concatenation of all
// tensors. The tensors have `sizes` elements.
std::vector<ShardPiece> PiecesInRange(const std::vector<int64_t>& sizes, int64_t begin,
                                      int64_t end);

// Checks that shards contain each element of a tensor exactly once. The shards are not trusted and
// may have any values. The shards of a valid tensor have the same pitch, and must be added in the
// order of offset and start.
class ShardCoverage {
 public:
  explicit ShardCoverage(int64_t elements) : elements_(elements) {}
  // Adds the next shard. Returns false if it does not continue the previous shard, because it
  // leaves a hole, overlaps or has another pitch. A shard that ends beyond its rows is detected
  // only by the next Add or by complete().
  bool Add(const Shard& shard);
  // Returns whether the shards cover the whole tensor. Precondition: every Add returned true.
  bool complete() const;

 private:
  // Returns whether the rows of the last shard are covered. Precondition: a shard was added.
  bool rows_covered() const { return at_ == elements_ / pitch_ * row_; }

  int64_t elements_;
  int64_t pitch_ = 0;  // distance between the starts of two rows; 0 before the first shard
  // Shard::offset and Shard::row of the last added shard.
  int64_t offset_ = 0, row_ = 0;
  int64_t at_ = 0;  // number of covered elements in the rows of the last added shard
};

}  // namespace dslaunch
