// Caches the keys and values of the tokens that a model has processed, so that each further token
// needs only the computation of one position.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace dslaunch {

// Describes a layer's part of the cache.
struct CachedLayer {
  int64_t token_elements = 0;  // number of elements of a token's key and value together
  // Number of tokens that a position attends to, including itself; nullopt if all.
  std::optional<int64_t> window;
};

// Stores the keys and values of several rows, each a sequence of tokens. The first pass through the
// model processes the beginnings of all rows, which are padded at their ends to the same length.
// Each later pass processes one token of each row. A layer with a window keeps only as many tokens
// as the window.
//
// A token's position is its index in the row, from 0. Its key and value are stored in the column
// `position`, or, with a window, in `position` modulo the number of columns. A query at `position`
// therefore attends to all columns up to `position`; with a window, the columns contain no older
// tokens.
//
// Not thread-safe.
class KeyValueCache {
 public:
  // Creates an empty cache. `capacity` is the maximum number of tokens of a row. Memory is
  // allocated in the first pass.
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}

  // Returns the size in bytes of a cache for a model with these layers.
  static int64_t Bytes(const std::vector<CachedLayer>& layers, int64_t rows, int64_t capacity,
                       int64_t element_bytes);

  // Begins a pass. `lengths` are the numbers of tokens of the rows, including the tokens of this
  // pass. Precondition: each length is at most the capacity, and after the first pass each length
  // grows by one in each pass.
  void BeginPass(const std::vector<int64_t>& lengths, c10::Device device);
  // Keeps only the rows with the indices `rows`, in this order.
  void KeepRows(const std::vector<int64_t>& rows);

  // Layers call the following functions during a pass.

  bool in_first_pass() const { return in_first_pass_; }
  int64_t capacity() const { return capacity_; }
  // Returns the position of each row's last token, int64 [rows] on the device.
  const at::Tensor& last_positions() const { return last_positions_; }

  // Returns the last token of each row, [rows, 1, ...], of x [rows, T, ...].
  at::Tensor LastTokens(const at::Tensor& x) const;

  struct Seen {
    at::Tensor keys, values;  // stored keys and values, [rows, columns, heads, head_dim]
    // Attention mask, bool [rows, 1, 1, columns]; nullopt if nothing is masked.
    std::optional<at::Tensor> mask;
  };
  // Stores the keys and values [rows, T, heads, head_dim] of the pass. Returns the keys and values
  // to which the tokens of the pass attend; nullopt in the first pass, whose tokens attend only to
  // each other. `layer` is the layer's index, and `window` its window.
  std::optional<Seen> Extend(int64_t layer, std::optional<int64_t> window, const at::Tensor& keys,
                             const at::Tensor& values);

 private:
  struct Stored {
    at::Tensor keys, values;
  };

  Stored FirstColumns(int64_t columns, const at::Tensor& keys, const at::Tensor& values) const;

  const int64_t capacity_;
  bool in_first_pass_ = false;
  int64_t shortest_ = 0, longest_ = 0;  // minimum and maximum number of tokens in a row
  at::Tensor last_positions_;
  std::map<int64_t, Stored> layers_;
};

// Base class of models whose forward pass can use a cache. With a cache, forward takes the tokens
// of a pass and returns logits [rows, 1, vocabulary] after each row's last token.
class CachingModel {
 public:
  virtual ~CachingModel() = default;
  // Returns the layers that use the cache; empty if the model cannot use a cache because of its
  // division over ranks.
  virtual std::vector<CachedLayer> CachedLayers() const = 0;

  // Makes the following forward passes use `cache`, which must outlive these passes; null to use no
  // cache.
  void UseCache(KeyValueCache* cache) { *cache_in_use_ = cache; }

 protected:
  // Pointer that the layers share. It points to null while no cache is used.
  using CacheInUse = std::shared_ptr<KeyValueCache*>;
  const CacheInUse& cache_in_use() const { return cache_in_use_; }

 private:
  const CacheInUse cache_in_use_ = std::make_shared<KeyValueCache*>(nullptr);
};

}  // namespace dslaunch
