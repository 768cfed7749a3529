// Weights from elsewhere, and for elsewhere, as safetensors files.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/tensor_part.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Fills every parameter and buffer of `model`, whatever its device and floating type, from a
// safetensors file, or from a folder as save_pretrained writes it (also in shards). Tensors are
// named by module path. Gpt2 takes them with and without "transformer." in front, passes over
// the masks that old files hold (attn.bias, attn.masked_bias), wants an lm_head.weight to equal the
// embedding, and the folder's config.json to describe what it computes.
//
// Throws TrainError kBadInput, naming file and tensor, for a tensor that is missing, has another
// shape, or is none of the model's, and for pickles: then nothing is filled; kIo, and then the
// model may be partly filled.
void InitWeights(Model& model, const std::string& path);

// Fills `parts`, of any floating type and device, of the model's parameters and buffers instead, of
// which it reads nothing but those bytes, a few MiB at a time. The model itself gives names and
// shapes; its tensors may be without memory. There may be none, or several, of a tensor. Every rank
// makes all of the checks above, so that all of them throw, or none.
void InitWeights(const Model& model, const std::vector<TensorPart>& parts, const std::string& path);

// A tensor of an export.
struct ExportedTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

// Writes config.json and model.safetensors into `folder`, which is made if need be; files of these
// names are replaced, each at once. `whole` is called once for each of `tensors`, in their order,
// for its values on any device; they are let go before the next call. `config` is what the model
// was made of; without it there is no config.json. transformers'
// AutoModelForCausalLM.from_pretrained reads the folder of a gpt2. One process at a time. kIo.
void ExportHuggingFace(const std::vector<ExportedTensor>& tensors,
                       const std::function<at::Tensor(size_t index)>& whole,
                       const std::optional<ModelConfig>& config, const std::string& folder);
// The same of tensors that are all there: EngineCore::ModelState().
void ExportHuggingFace(const std::vector<NamedTensor>& state, const ModelConfig& config,
                       const std::string& folder);

}  // namespace dslaunch
