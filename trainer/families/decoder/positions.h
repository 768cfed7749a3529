// The rotary embedding and the sliding windows of a decoder's attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/families/decoder/rotary.h"
#include "trainer/nn/key_value_cache.h"

namespace dslaunch {

// The tables of one model, for sequences of any length. They are neither parameters nor buffers.
// One thread at a time.
class Positions {
 public:
  // `cache` points to the cache of the current forward pass, or to null.
  Positions(const RotaryConfig& config, int64_t head_dim, std::shared_ptr<KeyValueCache*> cache)
      : config_(config), head_dim_(head_dim), cache_(std::move(cache)) {}

  KeyValueCache* cache() const { return *cache_; }

  // Returns {cosines, sines} for RotateHeads of `like` [B, T, ...]. Its tokens are at `positions`,
  // int64 [B, T], each below T; undefined: they count from 0, except in later passes of a cache.
  std::pair<at::Tensor, at::Tensor> Rotation(const at::Tensor& like, const at::Tensor& positions);
  // Returns bool [T, T], true where position i sees position j: j <= i and i - j < window. `like`
  // is on the mask's device.
  at::Tensor Mask(int64_t length, int64_t window, const at::Tensor& like);

 private:
  enum class Kind { kCosines, kSines, kMask };
  using Key = std::pair<Kind, int64_t>;  // and the length

  // Returns `host` as `options` say. Copies to other devices than the CPU are kept, because the
  // host would wait for each.
  at::Tensor OnDevice(const at::Tensor& host, const Key& key, const at::TensorOptions& options);

  const RotaryConfig config_;
  const int64_t head_dim_;
  const std::shared_ptr<KeyValueCache*> cache_;
  int64_t positions_ = 0;  // number of positions in table_
  std::shared_ptr<const RotaryTable> table_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const std::vector<char>>>
      masks_;  // key: length and window
  std::map<Key, at::Tensor> on_device_;
  // The result for the last `positions`, which all layers share.
  at::Tensor last_positions_, last_cosines_, last_sines_;
};

}  // namespace dslaunch
