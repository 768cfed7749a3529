#include "trainer/weights/merge_adapters.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "trainer/base/crc32.h"
#include "trainer/base/train_error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/state.h"
#include "trainer/checkpoint/tensor_type.h"
#include "trainer/weights/config_json.h"
#include "trainer/weights/convert_weights.h"
#include "trainer/weights/pretrained.h"
#include "trainer/weights/weight_files.h"
#include "trainer/weights/weight_shards.h"
#include "trainer/weights/weight_sources.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";

struct Adapter {
  at::Tensor a, b;  // fp32, [rank, in] and [out, rank]
};

class Merger {
 public:
  Merger(const Checkpoint& checkpoint, const AdapterRecord& record, const ModelConfig& model)
      : record_(record),
        prefix_(model.family().Names().prefix),
        in_first_(model.family().AdaptedLayers() == WeightLayout::kInOut) {
    StoredTensors stored(checkpoint);
    for (const TensorRecord& tensor : checkpoint.manifest.tensors) {
      if (!IsOfModel(tensor) || !IsAdapterTensor(tensor.name)) continue;
      const std::string layer(AdaptedLayerOf(tensor.name));
      const bool is_a = tensor.name == NameOfLoraA(layer);
      (is_a ? adapters_[layer].a : adapters_[layer].b) = stored.ReadWhole(tensor).to(at::kFloat);
    }
    FindWeights();
  }

  // Returns the headers of the base's tensors in the order in which the tensors are written.
  std::vector<TensorHeader> Headers(std::optional<at::ScalarType> dtype) const {
    std::vector<TensorHeader> headers;
    for (const auto& [name, source] : sources_) {
      const at::ScalarType saved = *ScalarTypeOf(source.tensor.dtype);
      const at::ScalarType written = dtype && c10::isFloatingType(saved) ? *dtype : saved;
      headers.push_back({name, SafetensorsDtype(written), source.tensor.shape});
    }
    return headers;
  }

  // Returns the values of a tensor of Headers() with its adapter merged, in the header's dtype.
  at::Tensor Merged(const TensorHeader& header) const {
    const WeightSource& source = sources_.at(header.name);
    const at::Tensor weight = ReadTensor(source);
    const auto sum = record_.base_sums.find(header.name);
    if (sum == record_.base_sums.end() ||
        sum->second != Crc32(weight.const_data_ptr(), weight.nbytes())) {
      RefuseInput(source.place + " has changed since the adapters were trained; give " +
                  record_.base + " its earlier content");
    }
    const at::ScalarType dtype = *ScalarTypeOf(header.dtype);
    const Adapter* const adapter = AdapterOf(header.name);
    if (adapter == nullptr) return weight.to(dtype);
    const at::Tensor update = adapter->b.mm(adapter->a) * record_.lora.scale();
    return (weight.to(at::kFloat) + (in_first_ ? update.t() : update)).to(dtype).contiguous();
  }

 private:
  // Finds the tensors of the base. Throws if the weight of an adapted layer is missing or has
  // another shape.
  void FindWeights() {
    for (const std::string& file_name : WeightFiles(record_.base)) {
      const auto file = std::make_shared<const SafetensorsFile>(file_name);
      for (const auto& [name, tensor] : file->tensors()) {
        const WeightSource source = {file, tensor, file_name + ": tensor " + name};
        if (!ScalarTypeOf(tensor.dtype)) RefuseInput(source.place + " is " + tensor.dtype);
        sources_.emplace(name, source);
      }
    }
    std::set<const Adapter*> found;
    for (const auto& [name, source] : sources_) {
      const Adapter* const adapter = AdapterOf(name);
      if (adapter == nullptr) continue;
      found.insert(adapter);
      std::vector<int64_t> shape = {adapter->b.size(0), adapter->a.size(1)};
      if (in_first_) std::swap(shape[0], shape[1]);
      if (source.tensor.shape != shape) RefuseInput(source.place + " does not fit its adapter");
    }
    for (const auto& [layer, adapter] : adapters_) {
      if (!found.contains(&adapter)) {
        RefuseInput(record_.base + ": holds no tensor " + layer + std::string(kWeight) +
                    ", to which an adapter belongs");
      }
    }
  }

  // Returns the adapter of a tensor of the base; null if the tensor has no adapter.
  const Adapter* AdapterOf(std::string_view tensor) const {
    if (!tensor.ends_with(kWeight)) return nullptr;
    tensor.remove_suffix(kWeight.size());
    for (const std::string& layer : {std::string(tensor), prefix_ + std::string(tensor)}) {
      const auto found = adapters_.find(layer);
      if (found != adapters_.end()) return &found->second;
    }
    return nullptr;
  }

  const AdapterRecord& record_;
  const std::string prefix_;                 // value of WeightNames::prefix
  const bool in_first_;                      // true if weights have the shape [in, out]
  std::map<std::string, Adapter> adapters_;  // adapters by name of their layer
  WeightSources sources_;                    // tensors by name in the base's files
};

}  // namespace

void MergeAdapters(const Checkpoint& checkpoint, const AdapterRecord& record,
                   const ModelConfig& model, std::optional<at::ScalarType> dtype,
                   const std::string& out) {
  if (record.base.empty()) {
    RefuseInput(checkpoint.folder +
                ": its adapters belong to drawn weights, which no file holds; nothing to merge");
  }
  std::error_code ignored;
  if (!fs::exists(record.base, ignored)) {
    RefuseInput(checkpoint.folder + ": its adapters were trained on the weights in " + record.base +
                ", which is missing; put them there again (a link is enough)");
  }
  const Merger merger(checkpoint, record, model);
  const std::vector<TensorHeader> headers = merger.Headers(dtype);
  std::vector<at::ScalarType> dtypes;
  for (const TensorHeader& header : headers) dtypes.push_back(*ScalarTypeOf(header.dtype));
  WeightOutput output = {.folder = out};
  output.on_published = [&] {
    if (fs::is_directory(record.base, ignored)) CopyModelFiles({record.base}, out);
    const bool has_config = fs::exists(out + "/" + kConfigJson, ignored);
    if (dtype || !has_config) WriteConfigJson(model, dtypes, out);
  };
  WriteWeights(output, headers, [&](size_t i, NewSafetensorsFile& file) {
    const at::Tensor merged = merger.Merged(headers[i]);
    file.Write(merged.const_data_ptr(), merged.nbytes());
  });
}

}  // namespace dslaunch
