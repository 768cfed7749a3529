// Reads and writes config.json in a folder of weights.
#pragma once

#include <string>

#include "trainer/config/model_family.h"

namespace dslaunch {

inline constexpr char kConfigJson[] = "config.json";

// Returns the text of config.json for a model: in the format of transformers if transformers can
// load the model, else the recipe's section "model". `dtype` is PyTorch's name of the weights'
// dtype, such as "float32".
std::string ConfigJsonText(const ModelConfig& model, const std::string& dtype);

// Throws kBadInput, naming file and key, if the config.json in `folder` describes another model.
// Does nothing if the folder has no config.json or transformers cannot load the model.
void CheckConfigJson(const ModelConfig& model, const std::string& folder);

}  // namespace dslaunch
