// Defines the interface of data sets that `dslaunch train` reads. To add your own data set in a
// plugin, see plugin.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace dslaunch {

// The inputs of a model and the expected results.
struct Batch {
  // Images are float [B, C, H, W] with values from 0 to 1, csv rows are float [B, F], and tokens
  // are int64 [B, T].
  at::Tensor inputs;
  at::Tensor targets;  // int64 [B] (classes) or [B, T] (the token after each input token)
};

// A set of samples with an index from 0 to size() - 1. Const methods may be called by several
// threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // number of samples
  // Returns the samples at `indices`, each from 0 to size() - 1, in that order, on the CPU. All
  // samples must have inputs of the same shape and type, and targets of the same shape and type.
  // The first dimension of both has the size of `indices`. An implementation throws a
  // std::exception if a sample cannot be read; its what() is shown to the user.
  virtual Batch Fetch(std::span<const int64_t> indices) const = 0;
  // Returns the shape of one sample's inputs: {C, H, W}, {F} or {T}.
  virtual std::vector<int64_t> input_shape() const {
    const int64_t first = 0;
    return Fetch({&first, 1}).inputs.sizes().slice(1).vec();
  }
  // Returns the number of tokens in a sample; 0 if samples are not text.
  virtual int64_t tokens_per_sample() const { return 0; }
};

}  // namespace dslaunch
