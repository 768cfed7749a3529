// The settings of low-rank adapters (LoRA: Hu et al. 2021, arXiv 2106.09685; rank-stabilized:
// Kalajdzievski 2023, arXiv 2312.03732), and their form in PEFT's files. Pure. Needs no LibTorch,
// because the launcher checks recipes by it too.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

class JsonObject;

// A linear layer W with an adapter computes W x + scale() B A dropout(x), with A [rank, in] and
// B [out, rank].
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;  // below 1
  bool use_rslora = false;
  // Names of layers, or ends of names: "q_proj" is each layer of that name, "self_attn.q_proj" each
  // such layer in a module self_attn. Empty: all linear layers but the head.
  std::vector<std::string> targets;
  // A folder in PEFT's form that has the initial adapters; empty: A is drawn at random and B is
  // zero.
  std::string init_weights;

  double scale() const;  // alpha / rank, with use_rslora alpha / sqrt(rank)
  // Returns whether `targets` names the linear layer `module`, "model.layers.0.self_attn.q_proj".
  bool Adapts(std::string_view module) const;
};

// Returns the names of the adapter's tensors of a layer, as in PEFT's files without their prefix.
std::string NameOfLoraA(std::string_view module);
std::string NameOfLoraB(std::string_view module);
// Returns whether `name` is a name that NameOfLoraA or NameOfLoraB returns.
bool IsAdapterTensor(std::string_view name);
// Returns the layer of an adapter's tensor. Precondition: IsAdapterTensor(name).
std::string_view AdaptedLayerOf(std::string_view name);

// Reads a recipe's section `lora`. Throws ConfigError, naming the key.
LoraConfig ReadLora(JsonObject section);
// Returns a section from which ReadLora makes `lora`.
nlohmann::ordered_json LoraSection(const LoraConfig& lora);

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";
// The prefix of the model's tensor names in kAdapterWeightsFile.
inline constexpr char kAdapterPrefix[] = "base_model.model.";

// Reads PEFT's adapter_config.json. Throws ConfigError, naming the key, for methods other than LoRA
// and for variants of it. Keys that change no result are ignored.
LoraConfig ReadAdapterConfig(JsonObject adapter_config);
// Returns a recipe's section `lora` for the adapters that the text of an adapter_config.json
// describes, without init_weights. Throws TrainError kBadInput, naming `source` and the key.
std::string LoraSectionOfAdapterConfig(const std::string& text, const std::string& source);

// Returns the content of adapter_config.json for adapters of `layers`. `base` is the folder or the
// file of the frozen weights, "" if there is none. `fan_in_fan_out`: the layers' weights are
// [in, out].
nlohmann::json AdapterConfigJson(const LoraConfig& lora, const std::vector<std::string>& layers,
                                 const std::string& base, bool fan_in_fan_out);

}  // namespace dslaunch
