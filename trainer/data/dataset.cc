#include "trainer/data/dataset.h"

#include <ATen/ATen.h>

#include <memory>

namespace dslaunch {
namespace {

// A tensor that owns the array's bytes.
at::Tensor ToTensor(IdxArray array) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(std::move(array.bytes));
  return at::from_blob(
      bytes->data(), array.dims, [bytes](void*) {}, at::kByte);
}

}  // namespace

ImageDataset::ImageDataset(LabeledImages data)
    : images_(ToTensor(std::move(data.images))), labels_(ToTensor(std::move(data.labels))) {}

Batch ImageDataset::Fetch(const std::vector<int64_t>& indices, size_t begin, size_t count) const {
  const at::Tensor wanted = at::from_blob(const_cast<int64_t*>(indices.data() + begin),
                                          {static_cast<int64_t>(count)}, at::kLong);
  return {images_.index_select(0, wanted).unsqueeze(1).to(at::kFloat).div_(255),
          labels_.index_select(0, wanted).to(at::kLong)};
}

}  // namespace dslaunch
