// Data sets as tensors, fetched by index.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/recipe.h"

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
  // The samples at `indices`, each from 0 to size() - 1, in that order, on the CPU.
  virtual Batch Fetch(std::span<const int64_t> indices) const = 0;
  // Of one sample's inputs: {C, H, W}, {F} or {T}.
  virtual std::vector<int64_t> input_shape() const = 0;
  // Tokens of one sample; 0 where samples are no text.
  virtual int64_t tokens_per_sample() const { return 0; }
};

struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null: there is nothing to evaluate on
};

// Opens what a recipe names. Every label of images and tables is checked to be below the model's
// number of classes; a token that is not below its vocabulary is found by the Fetch that reads it.
// Throws TrainError kBadInput, naming the file, or kIo, as Fetch does.
DataSplits OpenData(const DataConfig& data, const ModelConfig& model);

}  // namespace dslaunch
