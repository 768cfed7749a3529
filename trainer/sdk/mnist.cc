#include "dslaunch/mnist.h"

#include <ATen/ATen.h>

#include "trainer/data/idx.h"

namespace dslaunch {
namespace {

constexpr int64_t kAnyLabel = 256;

at::Tensor CopyOf(IdxArray& array) {
  return at::from_blob(array.bytes.data(), array.dims, at::kByte).clone();
}

}  // namespace

LabeledTensors ReadMnist(const std::string& folder, bool train) {
  LabeledImages data = ReadLabeledImages(folder, train ? Split::kTrain : Split::kTest, kAnyLabel);
  return {CopyOf(data.images).unsqueeze(1).to(at::kFloat).div_(255),
          CopyOf(data.labels).to(at::kLong)};
}

}  // namespace dslaunch
