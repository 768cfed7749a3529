// Loads and exports the weights of a model as safetensors files, also in Hugging Face's format.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/tensor_part.h"
#include "trainer/config/model_family.h"

namespace dslaunch {

// Fills every parameter and buffer of `model` but its adapters, of any device and floating-point
// type, from a safetensors file, or from a folder as save_pretrained writes it (also in shards).
// Tensors are named by module path, or otherwise as the family of `config`, the model's settings,
// says (WeightNames). The folder's config.json must describe this model.
//
// Throws TrainError kBadInput, naming file and tensor, if a tensor is missing, has another shape or
// does not belong to the model, and for pickles; nothing is filled then. Throws kIo if a file
// cannot be read; the model may be partly filled then.
void InitWeights(Model& model, const ModelConfig& config, const std::string& path);

// Fills only `parts` of the model's parameters and buffers, of any device and floating-point type.
// Reads a few MiB at a time, and besides the bytes of the parts only short gaps between them. The
// model gives names and shapes; its tensors may have no memory. A tensor may have no part, or
// several. Every rank makes all of the checks above, so either all ranks throw or none.
void InitWeights(const Model& model, const ModelConfig& config,
                 const std::vector<TensorPart>& parts, const std::string& path);

struct ExportedTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

// Writes config.json and the weights (weight_shards.h) into `folder`, which is created if it does
// not exist; existing files are replaced. `whole(i)` is called once for each of `tensors`, in
// order, and returns its values on any device; only one tensor is held at a time. Without `config`
// there is no config.json. transformers' from_pretrained can read the folder if the family is
// InTransformers. Throws the errors of WriteWeights.
void ExportHuggingFace(const std::vector<ExportedTensor>& tensors,
                       const std::function<at::Tensor(size_t index)>& whole,
                       const std::optional<ModelConfig>& config, const std::string& folder);
// Writes config.json alone, for weights of these dtypes. kIo.
void WriteConfigJson(const ModelConfig& config, const std::vector<at::ScalarType>& dtypes,
                     const std::string& folder);
// Exports tensors that are all in memory, as EngineCore::ModelState() returns them.
void ExportHuggingFace(const std::vector<NamedTensor>& state, const ModelConfig& config,
                       const std::string& folder);

}  // namespace dslaunch
