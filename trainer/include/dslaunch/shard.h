// Which elements of a whole tensor a rank holds.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch {

// A part of a tensor with N elements, in their row-major order. It consists of N / pitch rows of
// `row` elements, the first at `offset`, the others each `pitch` after the one before; of these,
// row after row, it has the elements [start, stop).
//
// A whole tensor is one row: offset 0, row = pitch = N. So are its rows along the first dimension,
// with other start and stop: elements [start, stop) of the tensor. A cut of another dimension has
// row < pitch.
struct Shard {
  int64_t offset = 0;
  int64_t row = 0;
  int64_t pitch = 0;
  int64_t start = 0;
  int64_t stop = 0;

  static constexpr Shard Whole(int64_t elements) { return {0, elements, elements, 0, elements}; }
  constexpr int64_t elements() const { return stop - start; }
  // Whether the elements are next to each other in the whole tensor, as its elements [start, stop).
  constexpr bool contiguous() const { return row == pitch; }
  bool operator==(const Shard&) const = default;
};

// A parameter that is cut over the ranks of a tensor-parallel group, as one of them holds it.
struct ParameterCut {
  std::vector<int64_t> shape;  // shape of the whole parameter
  Shard shard;  // the first elements of this rank's parameter; the others are padding
  // Whether a lower rank of the group has the same elements. Then norms and checkpoints leave out
  // this rank's.
  bool is_copy = false;
};

}  // namespace dslaunch
