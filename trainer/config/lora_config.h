// Defines the settings of low-rank adapters (LoRA: Hu et al. 2021, arXiv 2106.09685;
// rank-stabilized: Kalajdzievski 2023, arXiv 2312.03732), and converts them to and from PEFT's
// files. Pure functions. Does not depend on LibTorch, because the launcher also checks recipes with
// this code.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

class JsonObject;

// Settings of adapters. A linear layer W with an adapter computes W x + scale() B A dropout(x),
// with A [rank, in] and B [out, rank].
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;  // dropout probability, less than 1
  bool use_rslora = false;
  // Names of layers to adapt, or ends of names: "q_proj" selects each layer with that name,
  // "self_attn.q_proj" each such layer in a module self_attn. Empty for all linear layers except
  // the head.
  std::vector<std::string> targets;
  // Folder in PEFT's format with the initial adapters. If empty, A is drawn at random and B is
  // zero.
  std::string init_weights;

  double scale() const;  // returns alpha / rank, or alpha / sqrt(rank) with use_rslora
  // Returns whether `targets` selects the linear layer `module`, such as
  // "model.layers.0.self_attn.q_proj".
  bool Adapts(std::string_view module) const;
};

// Returns the name of matrix A of the layer's adapter, as in PEFT's files but without their prefix.
std::string NameOfLoraA(std::string_view module);
// Returns the name of matrix B of the layer's adapter, in the same form.
std::string NameOfLoraB(std::string_view module);
// Returns whether `name` has the form of a name that NameOfLoraA or NameOfLoraB returns.
bool IsAdapterTensor(std::string_view name);
// Returns the name of the layer to which an adapter's tensor belongs. Precondition:
// IsAdapterTensor(name) returns true.
std::string_view AdaptedLayerOf(std::string_view name);

// Reads a recipe's section `lora`. Throws ConfigError, naming the key.
LoraConfig ReadLora(JsonObject section);
// Returns the section from which ReadLora reads `lora`.
nlohmann::ordered_json LoraSection(const LoraConfig& lora);

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";
// Prefix of the names of the model's tensors in kAdapterWeightsFile.
inline constexpr char kAdapterPrefix[] = "base_model.model.";

// Reads PEFT's adapter_config.json. Throws ConfigError, naming the key, for methods other than LoRA
// and for variants of LoRA. Keys that do not change results are ignored.
LoraConfig ReadAdapterConfig(JsonObject adapter_config);
// Returns a recipe's section `lora` for the adapters that the text of an adapter_config.json
// describes, without init_weights. Throws TrainError kBadInput, naming `source` and the key.
std::string LoraSectionOfAdapterConfig(const std::string& text, const std::string& source);

// Returns the content of adapter_config.json for adapters of `layers`. `base` is the folder or the
// file of the frozen weights; "" if there is none. `fan_in_fan_out` is true if the layers' weights
// are [in, out].
nlohmann::json AdapterConfigJson(const LoraConfig& lora, const std::vector<std::string>& layers,
                                 const std::string& base, bool fan_in_fan_out);

}  // namespace dslaunch
