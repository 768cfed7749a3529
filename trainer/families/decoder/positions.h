// Computes the rotary embeddings and the sliding-window masks for a decoder's attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/families/decoder/rotary.h"
#include "trainer/nn/key_value_cache.h"

namespace dslaunch {

// Caches the tables of rotary embeddings and masks of one model, for sequences of any length. The
// tables are neither parameters nor buffers. Used by one thread at a time.
class Positions {
 public:
  // Makes empty tables. `*cache` is the cache of the current forward pass; null if the pass has no
  // cache.
  Positions(const RotaryConfig& config, int64_t head_dim, std::shared_ptr<KeyValueCache*> cache)
      : config_(config), head_dim_(head_dim), cache_(std::move(cache)) {}

  KeyValueCache* cache() const { return *cache_; }

  // Returns {cosines, sines} for RotateHeads of `like`, [B, T, ...]. `positions`, int64 [B, T], are
  // the positions of the tokens, each below T. If `positions` is undefined, positions count from 0,
  // or from the number of cached tokens in later passes of a cache.
  std::pair<at::Tensor, at::Tensor> Rotation(const at::Tensor& like, const at::Tensor& positions);
  // Returns a mask, bool [T, T] with T = `length`: element [i, j] is true if position i attends to
  // position j, which means j <= i and i - j < window. The mask is on the device of `like`.
  at::Tensor Mask(int64_t length, int64_t window, const at::Tensor& like);

 private:
  enum class Kind { kCosines, kSines, kMask };
  using Key = std::pair<Kind, int64_t>;  // kind and length of a cached tensor

  // Returns `host` with the device and dtype of `options`. The host would have to wait for each new
  // copy, so copies on devices other than the CPU are kept for later calls.
  at::Tensor OnDevice(const at::Tensor& host, const Key& key, const at::TensorOptions& options);

  const RotaryConfig config_;
  const int64_t head_dim_;
  const std::shared_ptr<KeyValueCache*> cache_;
  int64_t positions_ = 0;  // number of positions that table_ covers
  std::shared_ptr<const RotaryTable> table_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const std::vector<char>>>
      masks_;  // masks by length and window
  std::map<Key, at::Tensor> on_device_;
  // The result for the positions last_positions_, which all layers of a pass share.
  at::Tensor last_positions_, last_cosines_, last_sines_;
};

}  // namespace dslaunch
