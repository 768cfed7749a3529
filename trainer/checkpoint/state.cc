#include "trainer/checkpoint/state.h"

#include <ATen/ATen.h>

#include <map>
#include <optional>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/train_error.h"

namespace dslaunch {

void WriteState(const std::string& folder, const std::string& file,
                const std::vector<NamedTensor>& state, Manifest& manifest) {
  std::vector<at::Tensor> held;  // what `data` points into
  std::vector<TensorBytes> tensors;
  for (const NamedTensor& item : state) {
    held.push_back(item.tensor.detach().cpu().contiguous());
    const at::Tensor& tensor = held.back();
    const char* dtype = SafetensorsDtype(tensor.scalar_type());
    tensors.push_back({item.name, dtype, tensor.sizes().vec(), tensor.const_data_ptr()});
    manifest.tensors.push_back(
        {item.name, dtype, tensor.sizes().vec(), {{0, tensor.numel(), file}}});
  }
  manifest.files.push_back({file, WriteSafetensors(folder + "/" + file, tensors)});
}

void LoadState(const Checkpoint& checkpoint, const std::vector<NamedTensor>& state) {
  const auto fail = [&](const std::string& problem) {
    throw TrainError(ExitCode::kBadInput, checkpoint.folder + ": " + problem +
                                              "; it was saved with another model or optimizer");
  };
  std::map<std::string, SafetensorsFile> files;
  for (const FileRecord& file : checkpoint.manifest.files) {
    files.emplace(file.name, SafetensorsFile(checkpoint.folder + "/" + file.name));
  }
  std::map<std::string, const TensorRecord*> records;
  for (const TensorRecord& record : checkpoint.manifest.tensors) {
    records.emplace(record.name, &record);
  }
  const at::NoGradGuard no_grad;
  for (const NamedTensor& item : state) {
    const auto found = records.find(item.name);
    if (found == records.end()) fail("holds no tensor " + item.name);
    const TensorRecord& record = *found->second;
    const std::optional<at::ScalarType> saved = ScalarTypeOf(record.dtype);
    if (record.shape != item.tensor.sizes().vec() || !CanFill(saved, item.tensor.scalar_type())) {
      fail("tensor " + item.name + " is " + DescribedTensor(record.dtype, record.shape) + ", not " +
           DescribedTensor(SafetensorsDtype(item.tensor.scalar_type()), item.tensor.sizes().vec()));
    }
    const at::Tensor whole = at::empty(item.tensor.sizes(), at::dtype(*saved));
    auto* const bytes = static_cast<char*>(whole.mutable_data_ptr());
    for (const TensorSlice& slice : record.slices) {
      const SafetensorsFile& file = files.at(slice.file);
      file.Read(file.tensors().at(item.name),
                bytes + static_cast<size_t>(slice.start) * whole.element_size());
    }
    item.tensor.detach().copy_(whole);
    records.erase(found);
  }
  if (!records.empty()) fail("holds a tensor that this run has not: " + records.begin()->first);
}

}  // namespace dslaunch
