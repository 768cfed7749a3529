// Reads and writes adapters in PEFT's format: a folder with adapter_config.json and
// adapter_model.safetensors.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/model.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/tensor_part.h"
#include "trainer/config/lora_config.h"
#include "trainer/config/model_family.h"

namespace dslaunch {

// Fills all adapters of `model`, whose settings are `lora`, from a folder that PEFT has written.
// Throws kBadInput, naming the file and the key or the tensor, if the folder's settings differ from
// `lora`, or if a tensor is missing, has another shape or is not an adapter of the model. In these
// cases no adapter is filled. Throws kIo if a file cannot be read.
void InitAdapters(Model& model, const LoraConfig& lora, const std::string& folder);
// Fills only `parts` of the adapters. The tensors of `model` need no allocated memory. Every rank
// makes all checks of the overload above.
void InitAdapters(const Model& model, const LoraConfig& lora, const std::vector<TensorPart>& parts,
                  const std::string& folder);

// Writes `adapters` into `folder`. They are whole tensors on any device, with the model's names.
// Creates the folder if it does not exist, and replaces existing files. `base` is the folder or the
// file of the frozen weights; "" if there is none. Throws kIo if a file cannot be written.
void WriteAdapters(const std::vector<NamedTensor>& adapters, const LoraConfig& lora,
                   const ModelConfig& model, const std::string& base, const std::string& folder);

}  // namespace dslaunch
