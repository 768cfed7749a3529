// config.json, which lies beside the weights of a model.
#pragma once

#include <string>

#include "trainer/config/recipe.h"

namespace dslaunch {

inline constexpr char kHuggingFaceConfigFile[] = "config.json";

// For gpt2 what transformers' AutoModelForCausalLM reads, for other models the recipe's model
// section. `dtype` is that of the weights: "float32".
std::string HuggingFaceConfigText(const ModelConfig& model, const std::string& dtype);

// The sizes of a GPT-2 that transformers wrote. Throws kBadInput, naming file and key, for another
// kind of model and for variants that Gpt2 does not compute.
Gpt2Config ReadHuggingFaceConfig(const std::string& folder);

}  // namespace dslaunch
