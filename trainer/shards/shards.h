// Parts of tensors (dslaunch/shard.h): cuts, intersections, and coverage of the whole tensor. Pure,
// without LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "dslaunch/shard.h"

namespace dslaunch {

// Returns the part [begin, end) of dimension `dim` of a tensor of `shape`. Indices beyond the
// dimension are padding, which no shard has. Precondition: 0 <= begin <= end.
// If several tensors are stored side by side in one, `shape` separates them: [C, 3, C] for GPT-2's
// q, k and v in [C, 3 * C].
Shard CutShard(const std::vector<int64_t>& shape, size_t dim, int64_t begin, int64_t end);

// Returns the elements [start, stop) of `part`, counted from its first element. Elements beyond its
// last one are padding and left out.
Shard Slice(const Shard& part, int64_t start, int64_t stop);

// Rows of a shard, all of one length.
struct ShardBlock {
  int64_t at = 0;  // position in the whole tensor of the first row's first element
  int64_t rows = 0;
  int64_t row = 0;  // elements in each row; the rows are Shard::pitch apart
};

// Returns the shard's elements as at most three blocks, in order: the end of a row, whole rows, and
// the begin of a row. A contiguous shard is one row.
std::vector<ShardBlock> BlocksOf(const Shard& shard);

// Calls f for each run of elements that both `a` and `b` have, in order. The positions count from
// the first element of a and of b, which are parts of the same tensor. Takes time in proportion to
// the rows of b and the rows of a that these touch.
using CommonRun = std::function<void(int64_t in_a, int64_t in_b, int64_t length)>;
void ForEachCommonRun(const Shard& a, const Shard& b, const CommonRun& f);

// The elements of one tensor, of several, that are in a range of the elements of all.
struct ShardPiece {
  size_t tensor = 0;  // index of the tensor
  Shard shard;
  int64_t at = 0;  // position of the first element, counted from the beginning of the range
};

// Returns the pieces of tensors with `sizes` elements, laid out one after the other, that are in
// the range [begin, end) of all their elements, in order.
std::vector<ShardPiece> PiecesInRange(const std::vector<int64_t>& sizes, int64_t begin,
                                      int64_t end);

// Checks that shards contain each element of a tensor once. The shards are not trusted and may have
// any values. The shards of a valid tensor have one pitch, and are added in the order of offset and
// start.
class ShardCoverage {
 public:
  explicit ShardCoverage(int64_t elements) : elements_(elements) {}
  // Adds the next shard. Returns false if it does not continue the last one: if it leaves a hole,
  // overlaps or has another pitch. A shard that ends beyond its rows is detected by the next Add or
  // complete().
  bool Add(const Shard& shard);
  // Whether the shards cover the whole tensor. Precondition: every Add returned true.
  bool complete() const;

 private:
  // Precondition: a shard was added.
  bool rows_covered() const { return at_ == elements_ / pitch_ * row_; }

  int64_t elements_;
  int64_t pitch_ = 0;             // 0 before the first shard
  int64_t offset_ = 0, row_ = 0;  // the rows of the last shard
  int64_t at_ = 0;                // number of elements of these rows that are covered
};

}  // namespace dslaunch
