#include "trainer/data/dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

#include "trainer/base/mapped_file.h"
#include "trainer/base/train_error.h"
#include "trainer/data/chat_dataset.h"
#include "trainer/data/cifar.h"
#include "trainer/data/csv.h"
#include "trainer/data/data_file.h"
#include "trainer/data/idx.h"
#include "trainer/data/image_file.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/plugin_data.h"
#include "trainer/data/token_dataset.h"
#include "trainer/data/token_stream.h"

namespace dslaunch {
namespace {

// Stands for the number of classes or tokens of a model that sets no limit.
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// If a thread that reads ahead called LibTorch's operators, they would start a second set of
// threads, which would compete with the first set for the processors. So samples are gathered by
// plain loops.

// Maps each byte 0 to 255 to a float from 0 to 1.
constexpr std::array<float, 256> kToFloat = [] {
  std::array<float, 256> floats = {};
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i) / 255;
  return floats;
}();

// A data set of labeled images, kept in memory as bytes.
class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(LabeledImages images)
      : images_(std::move(images)), pixels_(images_.dims[1] * images_.dims[2] * images_.dims[3]) {}

  int64_t size() const override { return images_.dims[0]; }
  std::vector<int64_t> input_shape() const override {
    return {images_.dims.begin() + 1, images_.dims.end()};
  }

  Batch Fetch(std::span<const int64_t> indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{at::empty({count, images_.dims[1], images_.dims[2], images_.dims[3]}, at::kFloat),
                at::empty({count}, at::kLong)};
    auto* input = batch.inputs.mutable_data_ptr<float>();
    auto* target = batch.targets.mutable_data_ptr<int64_t>();
    for (const int64_t index : indices) {
      CheckSampleIndex(index, size());
      const uint8_t* pixel = &images_.pixels[static_cast<size_t>(index * pixels_)];
      input = std::transform(pixel, pixel + pixels_, input,
                             [](uint8_t byte) { return kToFloat[byte]; });
      *target++ = images_.labels[static_cast<size_t>(index)];
    }
    return batch;
  }

 private:
  LabeledImages images_;
  int64_t pixels_;  // number of pixels of one image, over all channels
};

// A data set of image files. A file is decoded each time its sample is fetched.
class ImageFileDataset : public Dataset {
 public:
  ImageFileDataset(std::vector<ImageFolder::Image> images, int64_t size)
      : images_(std::move(images)), size_(size) {}

  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  std::vector<int64_t> input_shape() const override { return {kChannels, size_, size_}; }

  Batch Fetch(std::span<const int64_t> indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{at::empty({count, kChannels, size_, size_}, at::kFloat),
                at::empty({count}, at::kLong)};
    auto* input = batch.inputs.mutable_data_ptr<float>();
    auto* target = batch.targets.mutable_data_ptr<int64_t>();
    std::vector<uint8_t> pixels(static_cast<size_t>(kChannels * size_ * size_));
    for (const int64_t index : indices) {
      CheckSampleIndex(index, size());
      const ImageFolder::Image& image = images_[static_cast<size_t>(index)];
      const MappedFile file(image.file);
      ResizeAndCrop(DecodeImage(image.file, file.bytes()), size_, pixels);
      for (int64_t channel = 0; channel < kChannels; ++channel) {
        for (size_t i = static_cast<size_t>(channel); i < pixels.size(); i += kChannels) {
          *input++ = kToFloat[pixels[i]];
        }
      }
      *target++ = image.label;
    }
    return batch;
  }

 private:
  static constexpr int64_t kChannels = 3;
  std::vector<ImageFolder::Image> images_;
  int64_t size_;  // height and width of the scaled images in pixels
};

// A data set of `size` consecutive rows of a table, beginning at row `first`.
class TableDataset : public Dataset {
 public:
  TableDataset(std::shared_ptr<const CsvTable> table, int64_t first, int64_t size)
      : table_(std::move(table)), first_(first), size_(size) {}

  int64_t size() const override { return size_; }
  std::vector<int64_t> input_shape() const override { return {table_->num_features}; }

  Batch Fetch(std::span<const int64_t> indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{at::empty({count, table_->num_features}, at::kFloat),
                at::empty({count}, at::kLong)};
    auto* input = batch.inputs.mutable_data_ptr<float>();
    auto* target = batch.targets.mutable_data_ptr<int64_t>();
    for (const int64_t index : indices) {
      CheckSampleIndex(index, size_);
      const int64_t row = first_ + index;
      input = std::copy_n(&table_->features[static_cast<size_t>(row * table_->num_features)],
                          table_->num_features, input);
      *target++ = table_->labels[static_cast<size_t>(row)];
    }
    return batch;
  }

 private:
  std::shared_ptr<const CsvTable> table_;
  int64_t first_;
  int64_t size_;
};

DataSplits OpenImages(const DataConfig& data, int64_t num_classes) {
  const auto read = data.type == DataConfig::Type::kIdx ? ReadIdxImages : ReadCifarImages;
  return {std::make_unique<ImageDataset>(read(data.path, Split::kTrain, num_classes)),
          std::make_unique<ImageDataset>(read(data.path, Split::kTest, num_classes))};
}

// Moves the images for evaluation from `train` to the result. The list is sorted by class, so the
// last images of each class are moved.
ImageFolder TakeValidation(const DataConfig& data, ImageFolder& train) {
  ImageFolder test{train.classes, {}};
  std::vector<ImageFolder::Image> kept;
  for (auto first = train.images.begin(); first != train.images.end();) {
    const auto last = std::find_if(first, train.images.end(),
                                   [&](const auto& image) { return image.label != first->label; });
    const auto middle = last - ValidationCount(data, last - first);
    kept.insert(kept.end(), first, middle);
    test.images.insert(test.images.end(), middle, last);
    first = last;
  }
  if (test.images.empty()) {
    RefuseDataFile(data.path, std::to_string(train.images.size()) + " images of " +
                                  std::to_string(train.classes.size()) +
                                  " classes cannot be divided by data.val_fraction, which keeps "
                                  "none of any class for the evaluation");
  }
  train.images = std::move(kept);
  return test;
}

DataSplits OpenImageFolder(const DataConfig& data, int64_t num_classes) {
  const bool divided = FileExists(data.path + "/train");
  ImageFolder train = ListImageFolder(divided ? data.path + "/train" : data.path);
  if (static_cast<int64_t>(train.classes.size()) > num_classes) {
    const std::string classes = std::to_string(train.classes.size());
    RefuseDataFile(data.path, "has folders for " + classes + " classes, but model.num_classes is " +
                                  std::to_string(num_classes) +
                                  "; --set model.num_classes=" + classes);
  }
  std::string test_path = data.val_path;
  if (divided && test_path.empty() && data.val_fraction == 0 && FileExists(data.path + "/val")) {
    test_path = data.path + "/val";
  }
  ImageFolder test;
  if (data.val_fraction > 0) {
    test = TakeValidation(data, train);
  } else if (!test_path.empty()) {
    test = ListImageFolder(test_path, train.classes);
  }
  DataSplits splits;
  splits.train = std::make_unique<ImageFileDataset>(std::move(train.images), data.image_size);
  if (!test.images.empty()) {
    splits.test = std::make_unique<ImageFileDataset>(std::move(test.images), data.image_size);
  }
  return splits;
}

DataSplits OpenTable(const DataConfig& data, int64_t num_classes) {
  const auto read = [&](const std::string& path) {
    return std::make_shared<const CsvTable>(
        ReadCsv(path, {data.label_column, data.columns, data.label_names}, num_classes));
  };
  const std::shared_ptr<const CsvTable> table = read(data.path);
  const auto rows = static_cast<int64_t>(table->labels.size());
  const int64_t test_rows = ValidationCount(data, rows);
  if (data.val_fraction > 0 && (test_rows == 0 || test_rows == rows)) {
    throw TrainError(ExitCode::kBadInput,
                     data.path + ": " + std::to_string(rows) +
                         " samples cannot be divided by data.val_fraction, which keeps " +
                         std::to_string(test_rows) + " of them for the evaluation");
  }
  DataSplits splits;
  splits.train = std::make_unique<TableDataset>(table, 0, rows - test_rows);
  if (test_rows > 0) {
    splits.test = std::make_unique<TableDataset>(table, rows - test_rows, test_rows);
  } else if (!data.val_path.empty()) {
    const std::shared_ptr<const CsvTable> test = read(data.val_path);
    const auto count = static_cast<int64_t>(test->labels.size());
    splits.test = std::make_unique<TableDataset>(test, 0, count);
  }
  return splits;
}

int64_t OrNoLimit(int64_t limit) { return limit > 0 ? limit : kNoLimit; }

}  // namespace

DataSplits OpenData(const DataConfig& data, const DataNeeds& needs) {
  DataSplits splits;
  switch (data.type) {
    case DataConfig::Type::kTokens:
    case DataConfig::Type::kText:
      return OpenTokenData(data, TokensPerSample(data, needs), OrNoLimit(needs.vocabulary));
    case DataConfig::Type::kChat:
      return OpenChatData(data, TokensPerSample(data, needs), OrNoLimit(needs.vocabulary));
    case DataConfig::Type::kCsv:
      splits = OpenTable(data, OrNoLimit(needs.classes));
      break;
    case DataConfig::Type::kIdx:
    case DataConfig::Type::kCifar:
      splits = OpenImages(data, OrNoLimit(needs.classes));
      break;
    case DataConfig::Type::kImageFolder:
      return OpenImageFolder(data, OrNoLimit(needs.classes));
    case DataConfig::Type::kPlugin:
      splits = OpenPluginData(data, needs);
      break;
  }
  if (splits.test && splits.train->input_shape() != splits.test->input_shape()) {
    throw TrainError(ExitCode::kBadInput,
                     DataName(data) + ": training samples and evaluation samples differ in size");
  }
  return splits;
}

}  // namespace dslaunch
