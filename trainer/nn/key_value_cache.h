// Keys and values of the tokens that a model has seen, so that each next token costs the work of
// one position.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace dslaunch {

// The part of one layer in the cache.
struct CachedLayer {
  int64_t token_elements = 0;     // numbers in a token's key and value
  std::optional<int64_t> window;  // tokens that a position sees, including itself; nullopt: all
};

// Keys and values for several rows, each a sequence of tokens. The first pass through the model is
// over the beginnings of all rows, which are padded at their ends to one length; each later pass is
// over one token of each row. A layer with a window keeps no more tokens than the window has.
//
// A token's position is its number in the row, from 0. Its key and value are in the column
// `position`, with a window in `position` modulo the number of columns. So a query at `position`
// sees all columns up to `position`: the columns of a window hold nothing older.
//
// One thread.
class KeyValueCache {
 public:
  // `capacity` is the largest number of tokens of a row. Memory is allocated in the first pass.
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}

  // Returns the bytes of the cache of a model with these layers.
  static int64_t Bytes(const std::vector<CachedLayer>& layers, int64_t rows, int64_t capacity,
                       int64_t element_bytes);

  // Begins a pass. `lengths` are the rows' numbers of tokens, including the tokens of the pass.
  // Precondition: at most the capacity; after the first pass, one more in each pass.
  void BeginPass(const std::vector<int64_t>& lengths, c10::Device device);
  // Keeps only these rows, in this order.
  void KeepRows(const std::vector<int64_t>& rows);

  // ---- for the layers, during a pass ----

  bool in_first_pass() const { return in_first_pass_; }
  int64_t capacity() const { return capacity_; }
  // int64 [rows] on the device: the position of each row's last token.
  const at::Tensor& last_positions() const { return last_positions_; }

  // Returns the last token of each row, [rows, 1, ...], of x [rows, T, ...].
  at::Tensor LastTokens(const at::Tensor& x) const;

  struct Seen {
    at::Tensor keys, values;         // [rows, columns, heads, head_dim]
    std::optional<at::Tensor> mask;  // bool [rows, 1, 1, columns], true where a row's query sees
  };
  // Stores the keys and values [rows, T, heads, head_dim] of the pass. Returns the keys and values
  // that the pass' tokens see; nullopt in the first pass, whose tokens see only each other. `layer`
  // and `window` identify the layer.
  std::optional<Seen> Extend(int64_t layer, std::optional<int64_t> window, const at::Tensor& keys,
                             const at::Tensor& values);

 private:
  struct Stored {
    at::Tensor keys, values;
  };

  Stored FirstColumns(int64_t columns, const at::Tensor& keys, const at::Tensor& values) const;

  const int64_t capacity_;
  bool in_first_pass_ = false;
  int64_t shortest_ = 0, longest_ = 0;  // tokens of a row
  at::Tensor last_positions_;
  std::map<int64_t, Stored> layers_;
};

// Implemented by models whose forward pass can use a cache. With one, forward takes the tokens of a
// pass and returns logits [rows, 1, vocabulary] after each row's last token.
class CachingModel {
 public:
  virtual ~CachingModel() = default;
  // Empty if the model cannot use a cache as it is divided over ranks.
  virtual std::vector<CachedLayer> CachedLayers() const = 0;

  // The following forward passes use `cache`, which must outlive them; null: no cache.
  void UseCache(KeyValueCache* cache) { *cache_in_use_ = cache; }

 protected:
  // Shared by the layers; points to null while there is no cache.
  using CacheInUse = std::shared_ptr<KeyValueCache*>;
  const CacheInUse& cache_in_use() const { return cache_in_use_; }

 private:
  const CacheInUse cache_in_use_ = std::make_shared<KeyValueCache*>(nullptr);
};

}  // namespace dslaunch
