#include "trainer/nn/key_value_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace dslaunch {

int64_t KeyValueCache::Bytes(const std::vector<CachedLayer>& layers, int64_t rows, int64_t capacity,
                             int64_t element_bytes) {
  int64_t bytes = 0;
  for (const CachedLayer& layer : layers) {
    bytes += std::min(capacity, layer.window.value_or(capacity)) * layer.token_elements;
  }
  return bytes * rows * element_bytes;
}

void KeyValueCache::BeginPass(const std::vector<int64_t>& lengths, c10::Device device) {
  in_first_pass_ = layers_.empty();
  const auto [shortest, longest] = std::ranges::minmax(lengths);
  shortest_ = shortest;
  longest_ = longest;
  last_positions_ = (at::tensor(lengths) - 1).to(device);
}

void KeyValueCache::KeepRows(const std::vector<int64_t>& rows) {
  const at::Tensor kept = at::tensor(rows).to(last_positions_.device());
  for (auto& [layer, stored] : layers_) {
    stored.keys = stored.keys.index_select(0, kept);
    stored.values = stored.values.index_select(0, kept);
  }
}

at::Tensor KeyValueCache::LastTokens(const at::Tensor& x) const {
  if (!in_first_pass_) return x;
  const at::Tensor rows = at::arange(x.size(0), last_positions_.options());
  return x.index({rows, last_positions_}).unsqueeze(1);
}

// Returns the columns after the first pass. Each column of a row gets the last position that maps
// to it. Columns beyond the row's tokens get an arbitrary token, because a later token replaces it
// before any query attends to it.
KeyValueCache::Stored KeyValueCache::FirstColumns(int64_t columns, const at::Tensor& keys,
                                                  const at::Tensor& values) const {
  const int64_t filled = std::min(columns, keys.size(1));
  const at::Tensor column = at::arange(filled, last_positions_.options()).unsqueeze(0);
  const at::Tensor laps =
      at::floor_divide(last_positions_.unsqueeze(1) - column, columns).clamp_min(0);
  const at::Tensor positions = (column + columns * laps).unsqueeze(2).unsqueeze(3);
  const auto first = [&](const at::Tensor& given) {
    // Masked columns are multiplied by 0, and 0 times NaN is not 0, so the memory is zeroed.
    const at::Tensor stored =
        at::zeros({given.size(0), columns, given.size(2), given.size(3)}, given.options());
    stored.slice(1, 0, filled)
        .copy_(given.gather(1, positions.expand({-1, -1, given.size(2), given.size(3)})));
    return stored;
  };
  return {first(keys), first(values)};
}

std::optional<KeyValueCache::Seen> KeyValueCache::Extend(int64_t layer,
                                                         std::optional<int64_t> window,
                                                         const at::Tensor& keys,
                                                         const at::Tensor& values) {
  const int64_t columns = std::min(capacity_, window.value_or(capacity_));
  if (in_first_pass_) {
    layers_[layer] = FirstColumns(columns, keys, values);
    return std::nullopt;
  }
  Stored& stored = layers_.at(layer);
  const at::Tensor rows = at::arange(keys.size(0), last_positions_.options());
  const at::Tensor column = at::remainder(last_positions_, columns);
  stored.keys.index_put_({rows, column}, keys.squeeze(1));
  stored.values.index_put_({rows, column}, values.squeeze(1));
  const int64_t seen = std::min(columns, longest_);
  std::optional<at::Tensor> mask;
  if (shortest_ < seen) {
    const at::Tensor all = at::arange(seen, last_positions_.options()).unsqueeze(0);
    mask = all.le(last_positions_.unsqueeze(1)).unsqueeze(1).unsqueeze(1);
  }
  return Seen{stored.keys.slice(1, 0, seen), stored.values.slice(1, 0, seen), mask};
}

}  // namespace dslaunch
