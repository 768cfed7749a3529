#include "trainer/data/cifar.h"

#include <filesystem>

#include "trainer/base/mapped_file.h"
#include "trainer/base/train_error.h"
#include "trainer/data/data_file.h"

namespace dslaunch {
namespace {

constexpr size_t kPixels = 3 * 32 * 32;
constexpr int kMaxTrainFiles = 5;

std::vector<std::string> Cifar10TrainFiles(const std::string& folder) {
  std::vector<std::string> files;
  std::string missing;
  for (int i = 1; i <= kMaxTrainFiles; ++i) {
    const std::string file = folder + "/data_batch_" + std::to_string(i) + ".bin";
    if (!FileExists(file)) {
      if (missing.empty()) missing = file;
    } else if (!missing.empty()) {
      throw TrainError(ExitCode::kBadInput,
                       missing + " does not exist, but " + file + " does; fetch it again");
    } else {
      files.push_back(file);
    }
  }
  return files;
}

}  // namespace

LabeledImages ReadCifarImages(const std::string& folder, Split split, int64_t num_classes) {
  RefuseFileForFolder(folder, "cifar");
  const bool cifar10 = FileExists(folder + "/data_batch_1.bin");
  if (cifar10 == FileExists(folder + "/train.bin")) {
    throw TrainError(
        ExitCode::kBadInput,
        folder + ": has " + (cifar10 ? "both" : "neither") + " data_batch_1.bin (CIFAR-10) " +
            (cifar10 ? "and" : "nor") +
            " train.bin (CIFAR-100); set data.path to a folder with the binary "
            "version of one of them, or data.type to image_folder for folders of PNG or JPEG "
            "files by class");
  }
  std::vector<std::string> files;
  if (split == Split::kTest) {
    files = {folder + (cifar10 ? "/test_batch.bin" : "/test.bin")};
  } else {
    files = cifar10 ? Cifar10TrainFiles(folder) : std::vector{folder + "/train.bin"};
  }

  // CIFAR-100 has a coarse and a fine label for each image.
  const size_t label_bytes = cifar10 ? 1 : 2;
  const size_t record_bytes = label_bytes + kPixels;
  LabeledImages images;
  for (const std::string& file : files) {
    const MappedFile mapped(file);
    const std::span<const uint8_t> bytes = mapped.bytes();
    if (bytes.empty() || bytes.size() % record_bytes != 0) {
      throw TrainError(ExitCode::kBadInput, file + ": has " + std::to_string(bytes.size()) +
                                                " bytes, which is not a number of records of " +
                                                std::to_string(record_bytes) +
                                                "; fetch the file again");
    }
    const size_t first = images.labels.size();
    for (size_t at = 0; at < bytes.size(); at += record_bytes) {
      const auto pixels = bytes.subspan(at + label_bytes, kPixels);
      images.labels.push_back(bytes[at + label_bytes - 1]);
      images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
    }
    CheckLabels(file, std::span(images.labels).subspan(first), num_classes);
  }
  images.dims = {static_cast<int64_t>(images.labels.size()), 3, 32, 32};
  return images;
}

}  // namespace dslaunch
