// Loads and exports the weights of a model as safetensors files, including Hugging Face's format.
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

// Fills every parameter and buffer of `model` except its adapters. They may be on any device and
// have any floating-point type. `path` is a safetensors file, or a folder that save_pretrained
// wrote, possibly with shards. Tensors are named by module path, or as WeightNames of the model's
// family specifies. `config` has the model's settings. The folder's config.json must describe this
// model.
//
// Throws TrainError kBadInput, naming file and tensor, if a tensor is missing, has another shape or
// does not belong to the model, and for pickles; nothing is filled in these cases. Throws kIo if a
// file cannot be read; the model may then be partly filled.
void InitWeights(Model& model, const ModelConfig& config, const std::string& path);

// Fills only `parts` of the model's parameters and buffers, which may be on any device and have any
// floating-point type. Reads a few MiB at a time, and only the bytes of the parts and short gaps
// between them. `model` supplies names and shapes; its tensors need no allocated memory. A tensor
// may have any number of parts. Every rank makes all checks of the overload above, so either all
// ranks throw or no rank does.
void InitWeights(const Model& model, const ModelConfig& config,
                 const std::vector<TensorPart>& parts, const std::string& path);

struct ExportedTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

// Writes config.json and the weights (weight_shards.h) into `folder`. Creates the folder if it does
// not exist, and replaces existing files. Calls whole(i) once for each of `tensors`, in order, to
// get the tensor's values on any device. Only one tensor is in memory at a time. Without `config`,
// no config.json is written. transformers' from_pretrained can read the folder if the family is
// InTransformers. Throws kBadInput if another process is writing to the folder, and kIo if a file
// cannot be written.
void ExportHuggingFace(const std::vector<ExportedTensor>& tensors,
                       const std::function<at::Tensor(size_t index)>& whole,
                       const std::optional<ModelConfig>& config, const std::string& folder);
// Writes only config.json, for weights with these dtypes. Throws kIo if the file cannot be written.
void WriteConfigJson(const ModelConfig& config, const std::vector<at::ScalarType>& dtypes,
                     const std::string& folder);
// Exports tensors that are all in memory, such as the result of EngineCore::ModelState().
void ExportHuggingFace(const std::vector<NamedTensor>& state, const ModelConfig& config,
                       const std::string& folder);

}  // namespace dslaunch
