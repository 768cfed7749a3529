// Describes the elements of a whole tensor that a rank holds.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

// A part of a tensor with N elements in row-major order. The tensor contains N / pitch rows of
// `row` elements: the first begins at `offset`, each other row begins `pitch` elements after the
// previous row. The part has the elements [start, stop) of the rows' concatenation.
//
// A whole tensor is one row with offset 0 and row = pitch = N. A cut of the first dimension has the
// same row, and is its elements [start, stop). A cut of another dimension has row < pitch.
struct Shard {
  int64_t offset = 0;
  int64_t row = 0;
  int64_t pitch = 0;
  int64_t start = 0;
  int64_t stop = 0;

  static constexpr Shard Whole(int64_t elements) { return {0, elements, elements, 0, elements}; }
  constexpr int64_t elements() const { return stop - start; }
  // Returns whether the part is the elements [start, stop) of the whole tensor, without gaps.
  constexpr bool contiguous() const { return row == pitch; }
  bool operator==(const Shard&) const = default;
};

// Describes the part that one rank holds of a parameter that is cut over a tensor-parallel group.
struct ParameterCut {
  std::vector<int64_t> shape;  // shape of the whole parameter
  Shard shard;  // elements at the start of this rank's tensor; the rest of the tensor is padding
  // True if a lower rank of the group has the same elements. If so, norms and checkpoints omit this
  // rank's elements.
  bool is_copy = false;
};

}  // namespace dslaunch
