#include "trainer/data/dataset.h"

#include <ATen/ATen.h>

#include "trainer/data/idx.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

// A tensor that owns the array's bytes.
at::Tensor ToTensor(IdxArray array) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(std::move(array.bytes));
  return at::from_blob(
      bytes->data(), array.dims, [bytes](void*) {}, at::kByte);
}

// Labelled images, held in memory as bytes.
class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(LabeledImages data)
      : images_(ToTensor(std::move(data.images)).unsqueeze(1)),
        labels_(ToTensor(std::move(data.labels))) {}

  int64_t size() const override { return images_.size(0); }
  std::vector<int64_t> input_shape() const override { return images_.sizes().slice(1).vec(); }

  Batch Fetch(std::span<const int64_t> indices) const override {
    const at::Tensor wanted = at::from_blob(const_cast<int64_t*>(indices.data()),
                                            {static_cast<int64_t>(indices.size())}, at::kLong);
    return {images_.index_select(0, wanted).to(at::kFloat).div_(255),
            labels_.index_select(0, wanted).to(at::kLong)};
  }

 private:
  at::Tensor images_;  // [N, C, H, W] uint8
  at::Tensor labels_;  // [N] uint8
};

}  // namespace

DataSplits OpenData(const DataConfig& data, const ModelConfig& model) {
  const int64_t classes = std::holds_alternative<MlpConfig>(model)
                              ? std::get<MlpConfig>(model).num_classes
                              : std::get<CnnConfig>(model).num_classes;
  DataSplits splits;
  splits.train =
      std::make_unique<ImageDataset>(ReadLabeledImages(data.path, Split::kTrain, classes));
  splits.test = std::make_unique<ImageDataset>(ReadLabeledImages(data.path, Split::kTest, classes));
  if (splits.train->input_shape() != splits.test->input_shape()) {
    throw TrainError(ExitCode::kBadInput, data.path + ": training and test images differ in size");
  }
  return splits;
}

}  // namespace dslaunch
