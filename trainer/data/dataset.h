// Labelled images as tensors, fetched by index.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/data/idx.h"

namespace dslaunch {

struct Batch {
  at::Tensor images;  // [B, 1, H, W] float in 0 .. 1
  at::Tensor labels;  // [B] int64
};

// Holds its data in memory as bytes. Const methods may be called from several threads.
class ImageDataset {
 public:
  explicit ImageDataset(LabeledImages data);

  int64_t size() const { return images_.size(0); }
  int64_t height() const { return images_.size(1); }
  int64_t width() const { return images_.size(2); }

  // The samples indices[begin .. begin + count), in that order.
  Batch Fetch(const std::vector<int64_t>& indices, size_t begin, size_t count) const;

 private:
  at::Tensor images_;  // [N, H, W] uint8
  at::Tensor labels_;  // [N] uint8
};

}  // namespace dslaunch
