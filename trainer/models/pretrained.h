// Weights from elsewhere, and for elsewhere, as safetensors files.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Fills every parameter and buffer of `model`, whatever its device and floating type, from a
// safetensors file, or from a folder as save_pretrained writes it (also in shards). Tensors are
// named by module path. Gpt2 takes them with and without "transformer." in front, passes over
// the masks that old files hold (attn.bias, attn.masked_bias), wants an lm_head.weight to equal the
// embedding, and the folder's config.json to describe what it computes.
//
// Throws TrainError kBadInput, naming file and tensor, for a tensor that is missing, has another
// shape, or is none of the model's, and for pickles; kIo. The model is then partly filled.
void InitWeights(Model& model, const std::string& path);

// Writes config.json and model.safetensors into `folder`, which is made if need be; files of these
// names are replaced, each at once. `state` is EngineCore::ModelState(); `config` is what the model
// was made of. transformers' AutoModelForCausalLM.from_pretrained reads the folder of a gpt2. One
// process at a time. kIo.
void ExportHuggingFace(const std::vector<NamedTensor>& state, const ModelConfig& config,
                       const std::string& folder);

}  // namespace dslaunch
