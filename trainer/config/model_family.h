// Defines the interface between recipes and the families of models (trainer/families). All facts
// about a model are requested through this interface, except inside its family's folder. Does not
// depend on LibTorch, because the launcher also checks recipes with this code;
// trainer/families/make_model.h creates modules.
#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch {

class JsonObject;
class ModelFamily;

// A model's requirements for its samples. All numbers are 0 if the requirements are unknown (the
// model of a plugin); the model then accepts any samples.
struct DataNeeds {
  int64_t classes = 0;  // number of classes, if not 0; labels are from 0 to classes - 1
  // Number of token ids, if not 0; samples are ids from 0 to vocabulary - 1.
  int64_t vocabulary = 0;
  // Maximum number of tokens in a sample, and the default; 0 for no limit.
  int64_t positions = 0;
  // Token that ends a document; nullopt if unknown.
  std::optional<int64_t> end_token = std::nullopt;
};

// The settings of a model of any family. The object is a value and cheap to copy. Several threads
// may call const functions at once.
class ModelConfig {
 public:
  // Creates an empty configuration: type() and needs() are empty, and there is no family.
  ModelConfig() = default;
  // Wraps `settings`. `Settings` is the struct of a family, whose member function Family() returns
  // the family.
  template <class Settings>
  requires requires { Settings::Family(); }
  ModelConfig(Settings settings) : family_(&Settings::Family()), settings_(std::move(settings)) {}

  const ModelFamily& family() const { return *family_; }
  // Returns the settings. Throws std::bad_any_cast if `Settings` is not the struct of family().
  template <class Settings>
  const Settings& As() const {
    return std::any_cast<const Settings&>(settings_);
  }

  const char* type() const;  // returns the family's type, such as "mlp"; "" without a family
  DataNeeds needs() const;   // returns the model's requirements; all 0 without a family

 private:
  const ModelFamily* family_ = nullptr;
  std::any settings_;
};

// Names of a model's tensors in files of other programs, if they differ from the model's names.
struct WeightNames {
  // Prefix to add to the name of a file's tensor that has no counterpart in the model, for a second
  // lookup.
  std::string prefix;
  // A tensor in files that must be equal to a tensor of the model.
  struct Copy {
    std::string tensor;  // name of the tensor in the model
    // Rest of the message if the tensors differ: "differs from ...".
    std::string difference;
  };
  std::map<std::string, Copy> copies;  // redundant tensors, by name in the file
  // Ends of names of tensors in files that are ignored.
  std::vector<std::string> ignored_endings;
};

enum class WeightLayout { kOutIn, kInOut };  // [out, in] as in torch.nn.Linear, or [in, out]

// A family of models. Immutable, and exists until the program ends. In all functions `config` is a
// configuration of this family.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;

  virtual const char* type() const = 0;  // value of model.type in recipes, such as "mlp"
  // Reads the keys of a recipe's section "model", except `type`. Throws ConfigError, naming the
  // key. The caller handles unknown keys.
  virtual ModelConfig Read(JsonObject& section) const = 0;
  virtual DataNeeds Needs(const ModelConfig& config) const = 0;
  // Returns a section "model", including `type`, from which Read returns `config`.
  virtual nlohmann::ordered_json Section(const ModelConfig& config) const = 0;
  // Returns the content of config.json for exported weights of the dtype `dtype`, such as
  // "float32". The content has the format of transformers if transformers supports the model;
  // otherwise it is the section "model".
  virtual nlohmann::json ConfigJson(const ModelConfig& config, const std::string& dtype) const;

  // Returns whether the model takes tokens. If so, its needs include a vocabulary, and it can
  // continue a text.
  virtual bool TakesTokens() const { return false; }
  // Returns whether transformers can load the model's weights and config.json.
  bool InTransformers() const { return !ModelTypes().empty(); }
  virtual WeightNames Names() const { return {}; }
  // Returns the values of model_type in config.json for the models that the family implements.
  virtual std::vector<std::string> ModelTypes() const { return {}; }
  // Reads a config.json of transformers with one of ModelTypes. Throws ConfigError, naming the key,
  // for variants that the family does not implement. Ignores other keys.
  virtual ModelConfig ReadConfigJson(JsonObject& config_json) const { return Read(config_json); }
  // Returns `config` for a model whose samples may consist of several documents. Tokens attend only
  // to tokens of their own document, and positions count within the document. Tokens must be marked
  // (trainer/base/document_mark.h), and forward passes must alternate with backward passes. Returns
  // nullopt if the family has no such models.
  virtual std::optional<ModelConfig> SeparateDocuments(const ModelConfig&) const {
    return std::nullopt;
  }
  // Returns the keys of the section whose values do not affect the shape of any tensor.
  virtual std::vector<const char*> KeysNotInShapes() const { return {}; }
  // Returns the path of the shared library that defines the model, and possibly data and metrics;
  // empty for the trainer's own models.
  virtual std::string Library(const ModelConfig&) const { return ""; }
  // Returns the layout of the weights of linear layers that the recipe's section `lora` can adapt;
  // nullopt if the models have no such layers.
  virtual std::optional<WeightLayout> AdaptedLayers() const { return std::nullopt; }
  bool HasAdapters() const { return AdaptedLayers().has_value(); }
  // Returns why the model cannot be divided over the `parts` ranks of a tensor-parallel group, as a
  // sentence that names keys and numbers; empty if the model can be divided. Precondition: parts >
  // 1.
  virtual std::string TensorParallelRefusal(const ModelConfig& config, int64_t parts) const;
  // Returns the smallest section "model", without `type`, that Read accepts. docs/reference is
  // generated from it.
  virtual nlohmann::json LeastSection() const;
};

inline const char* ModelConfig::type() const { return family_ == nullptr ? "" : family_->type(); }
inline DataNeeds ModelConfig::needs() const {
  return family_ == nullptr ? DataNeeds() : family_->Needs(*this);
}

// Returns all families in a fixed order. Defined in trainer/families/registry.cc.
const std::vector<const ModelFamily*>& ModelFamilies();

// Returns the family that implements the model_type in a config.json of transformers. Throws
// ConfigError if there is none.
const ModelFamily& FamilyOfConfigJson(JsonObject& config_json);

// Returns, as JSON, the section "model" of a recipe for the model that the text of a config.json
// describes. Throws TrainError kBadInput, naming `source` and the key.
std::string SectionOfConfigJson(const std::string& text, const std::string& source);

}  // namespace dslaunch
