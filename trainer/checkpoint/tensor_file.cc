#include "dslaunch/tensor_file.h"

#include <ATen/ATen.h>

#include <optional>

#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"

namespace dslaunch {

SavedFile SaveTensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> dense;  // contiguous tensors, which must exist until they are written
  std::vector<TensorBytes> written;
  for (const auto& [name, tensor] : tensors) {
    dense.push_back(tensor.detach().cpu().contiguous());
    written.push_back({name, SafetensorsDtype(tensor.scalar_type()), tensor.sizes().vec(),
                       dense.back().const_data_ptr()});
  }
  const FileSum sum = WriteSafetensors(path, written);
  return {sum.bytes, sum.crc32};
}

std::vector<NamedTensor> LoadTensors(const std::string& path) {
  const SafetensorsFile file(path);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, saved] : file.tensors()) {
    const std::optional<at::ScalarType> dtype = ScalarTypeOf(saved.dtype);
    if (!dtype) RefuseInput(path + ": " + name + " is of the type " + saved.dtype);
    tensors.push_back({name, at::empty(saved.shape, *dtype)});
    file.Read(saved, tensors.back().tensor.mutable_data_ptr());
  }
  return tensors;
}

}  // namespace dslaunch
