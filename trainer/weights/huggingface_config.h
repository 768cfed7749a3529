// config.json in a folder of weights.
#pragma once

#include <string>

#include "trainer/config/recipe.h"

namespace dslaunch {

inline constexpr char kHuggingFaceConfigFile[] = "config.json";

// The text of config.json: for gpt2 in the form that transformers' AutoModelForCausalLM reads, for
// other models the recipe's model section. `dtype` is that of the weights: "float32".
std::string HuggingFaceConfigText(const ModelConfig& model, const std::string& dtype);

// Reads the sizes of a GPT-2 from a config.json of transformers. Throws kBadInput, naming file and
// key, for another model type and for variants that Gpt2 does not implement.
Gpt2Config ReadHuggingFaceConfig(const std::string& folder);

}  // namespace dslaunch
