// Defines the interface of data sets that `dslaunch train` reads. To add your own data set in a
// plugin, see plugin.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace dslaunch {

// A batch of samples: the inputs of a model and the expected results.
struct Batch {
  // Float [B, C, H, W] with values from 0 to 1 (images), float [B, F] (csv rows) or int64 [B, T]
  // (tokens).
  at::Tensor inputs;
  at::Tensor targets;  // classes, int64 [B], or for each input token the next token, int64 [B, T]
};

// A set of samples that are numbered from 0 to size() - 1. Several threads may call const methods
// at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // returns the number of samples
  // Returns the samples at `indices`, each from 0 to size() - 1, in that order, on the CPU. The
  // first dimension of inputs and targets is the number of indices. All samples must have inputs of
  // the same shape and type, and targets of the same shape and type. An implementation throws a
  // std::exception if a sample cannot be read; the exception's what() is shown to the user.
  virtual Batch Fetch(std::span<const int64_t> indices) const = 0;
  // Returns the shape of one sample's inputs: {C, H, W}, {F} or {T}.
  virtual std::vector<int64_t> input_shape() const {
    const int64_t first = 0;
    return Fetch({&first, 1}).inputs.sizes().slice(1).vec();
  }
  // Returns the number of tokens in a sample; 0 if the samples are not text.
  virtual int64_t tokens_per_sample() const { return 0; }
};

}  // namespace dslaunch
