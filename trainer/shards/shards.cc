#include "trainer/shards/shards.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace dslaunch {
namespace {

int64_t Product(std::vector<int64_t>::const_iterator begin,
                std::vector<int64_t>::const_iterator end) {
  return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
}

}  // namespace

Shard CutShard(const std::vector<int64_t>& shape, size_t dim, int64_t begin, int64_t end) {
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(dim);
  const int64_t rows = Product(shape.begin(), at), inner = Product(at + 1, shape.end());
  const int64_t pitch = *at * inner;
  const int64_t from = std::min(begin, *at) * inner, to = std::min(end, *at) * inner;
  if (rows == 1) return Slice(Shard::Whole(pitch), from, to);
  if (to - from == pitch) return Shard::Whole(rows * pitch);
  return {from, to - from, pitch, 0, rows * (to - from)};
}

Shard Slice(const Shard& part, int64_t start, int64_t stop) {
  Shard slice = part;
  slice.start = std::min(part.start + start, part.stop);
  slice.stop = std::min(part.start + stop, part.stop);
  return slice;
}

std::vector<ShardBlock> BlocksOf(const Shard& shard) {
  std::vector<ShardBlock> blocks;
  for (int64_t at = shard.start; at < shard.stop;) {
    const int64_t left = shard.stop - at, in_row = at % shard.row;
    const bool is_part = in_row > 0 || left < shard.row;
    const int64_t row = is_part ? std::min(shard.row - in_row, left) : shard.row;
    const int64_t rows = is_part ? 1 : left / shard.row;
    blocks.push_back({at / shard.row * shard.pitch + shard.offset + in_row, rows, row});
    at += rows * row;
  }
  return blocks;
}

void ForEachCommonRun(const Shard& a, const Shard& b, const CommonRun& f) {
  if (a.elements() == 0) return;
  // Both shards are slices of the same rows.
  if (a.offset == b.offset && a.row == b.row && a.pitch == b.pitch) {
    const int64_t from = std::max(a.start, b.start), to = std::min(a.stop, b.stop);
    if (from < to) f(from - a.start, from - b.start, to - from);
    return;
  }
  int64_t in_b = 0;
  for (const ShardBlock& block : BlocksOf(b)) {
    for (int64_t i = 0; i < block.rows; ++i, in_b += block.row) {
      const int64_t begin = block.at + i * b.pitch, end = begin + block.row;
      // Index of the first row that the run touches and of which `a` has elements.
      const int64_t first = std::max((begin - a.offset) / a.pitch, a.start / a.row);
      for (int64_t row = first; row * a.row < a.stop; ++row) {
        const int64_t row_begin = row * a.pitch + a.offset;
        if (row_begin >= end) break;
        // Number that, added to a position in the whole tensor, gives the position in the
        // concatenation of a's rows.
        const int64_t to_a = row * a.row - row_begin;
        const int64_t from = std::max(std::max(begin, row_begin) + to_a, a.start);
        const int64_t to = std::min(std::min(end, row_begin + a.row) + to_a, a.stop);
        if (from < to) f(from - a.start, in_b + from - to_a - begin, to - from);
      }
    }
  }
}

std::vector<ShardPiece> PiecesInRange(const std::vector<int64_t>& sizes, int64_t begin,
                                      int64_t end) {
  std::vector<ShardPiece> pieces;
  int64_t first = 0;  // position of the tensor's first element in the concatenation of all tensors
  for (size_t i = 0; i < sizes.size(); first += sizes[i++]) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + sizes[i]);
    if (from >= to) continue;
    pieces.push_back({i, Slice(Shard::Whole(sizes[i]), from - first, to - first), from - begin});
  }
  return pieces;
}

bool ShardCoverage::Add(const Shard& shard) {
  if (elements_ == 0) return shard.start == 0 && shard.stop == 0;
  if (pitch_ == 0) {
    if (shard.pitch <= 0 || elements_ % shard.pitch != 0) return false;
    pitch_ = shard.pitch;
  }
  if (shard.pitch != pitch_) return false;
  if (shard.offset != offset_ || shard.row != row_) {
    if (!rows_covered() || shard.offset != offset_ + row_ || shard.row <= 0 ||
        shard.row > pitch_ - shard.offset) {
      return false;
    }
    offset_ = shard.offset;
    row_ = shard.row;
    at_ = 0;
  }
  if (shard.start != at_ || shard.stop < at_) return false;
  at_ = shard.stop;
  return true;
}

bool ShardCoverage::complete() const {
  return elements_ == 0 || (pitch_ > 0 && offset_ + row_ == pitch_ && rows_covered());
}

}  // namespace dslaunch
