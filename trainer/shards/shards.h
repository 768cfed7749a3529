// Parts of tensors (dslaunch/shard.h): how they are cut, what two of them share, and whether some
// are the whole. Pure, without LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "dslaunch/shard.h"

namespace dslaunch {

// Returns the part [begin, end) of dimension `dim` of a tensor of `shape`. Indices beyond the
// dimension are padding, which no shard has. Precondition: 0 <= begin <= end.
// A tensor that has several tensors side by side is given by the shape that separates them: GPT-2's
// q, k and v, [C, 3 * C], as [C, 3, C].
Shard CutShard(const std::vector<int64_t>& shape, size_t dim, int64_t begin, int64_t end);

// Returns the elements [start, stop) of `part`, counted from its own first element. Elements beyond
// its last are padding and left out.
Shard Slice(const Shard& part, int64_t start, int64_t stop);

// Rows of a shard, all of one length.
struct ShardBlock {
  int64_t at = 0;  // the first element of the first row, counted in the whole tensor
  int64_t rows = 0;
  int64_t row = 0;  // elements of each row; the rows are Shard::pitch apart
};

// Returns the shard's elements in their order: the rest of a row, whole rows, the begin of a row,
// those of them that it has. A contiguous shard is one row.
std::vector<ShardBlock> BlocksOf(const Shard& shard);

// Calls f(place in a, place in b, length) for each run of elements that both hold, in their order.
// Places count from the first element of a and of b. Both are parts of the same tensor.
// Takes time in proportion to the rows of b and the rows of a that these touch.
using CommonRun = std::function<void(int64_t in_a, int64_t in_b, int64_t length)>;
void ForEachCommonRun(const Shard& a, const Shard& b, const CommonRun& f);

// Elements of one of several tensors, and their place in a range of all of them.
struct ShardPiece {
  size_t tensor = 0;  // its index
  Shard shard;
  int64_t at = 0;  // the first element's place, counted from the begin of the range
};

// Returns the pieces of tensors with `sizes` elements, laid out one after the other, that are in
// the range [begin, end) of all their elements, in order.
std::vector<ShardPiece> PiecesInRange(const std::vector<int64_t>& sizes, int64_t begin,
                                      int64_t end);

// Checks that shards hold each element of a tensor once. They may have any values; those of a right
// tensor are of one pitch and come in the order of offset and start.
class ShardCoverage {
 public:
  explicit ShardCoverage(int64_t elements) : elements_(elements) {}
  // Returns false if the next shard does not begin where the last one ends.
  bool Add(const Shard& shard);
  // Whether the shards are the whole tensor.
  bool complete() const;

 private:
  // Precondition: a shard was added.
  bool rows_covered() const { return at_ == elements_ / pitch_ * row_; }

  int64_t elements_;
  int64_t pitch_ = 0;   // of all shards; 0 before the first
  int64_t offset_ = 0;  // of the rows that are being covered
  int64_t row_ = 0;     // their length
  int64_t at_ = 0;      // elements of these rows that are covered
};

}  // namespace dslaunch
