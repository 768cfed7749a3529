// The interface of data sets that `dslaunch train` reads. One of your own, in a plugin: plugin.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace dslaunch {

// What a model is given and what it is to answer.
struct Batch {
  at::Tensor inputs;   // float [B, C, H, W] in 0 .. 1 (images), float [B, F] (csv) or int64 [B, T]
  at::Tensor targets;  // int64 [B], or [B, T]: the token after each one
};

// Const methods may be called from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples
  // The samples at `indices`, each from 0 to size() - 1, in that order, on the CPU. Every sample
  // has inputs of the same shape and type, and so have its targets; the first dimension is that of
  // `indices`. If a sample cannot be read, throw a std::exception; the user sees its what().
  virtual Batch Fetch(std::span<const int64_t> indices) const = 0;
  // Of one sample's inputs: {C, H, W}, {F} or {T}.
  virtual std::vector<int64_t> input_shape() const {
    const int64_t first = 0;
    return Fetch({&first, 1}).inputs.sizes().slice(1).vec();
  }
  // Tokens of one sample; 0 where samples are no text.
  virtual int64_t tokens_per_sample() const { return 0; }
};

}  // namespace dslaunch
