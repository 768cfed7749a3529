// The interface between recipes and the families of models (trainer/families): all facts about a
// model are requested here, except inside its family's folder. Needs no LibTorch, because the
// launcher checks recipes by it too; modules are made by trainer/families/make_model.h.
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

// Requirements of a model for its samples. All 0 if they are not known (the model of a plugin); the
// model then gets any samples.
struct DataNeeds {
  int64_t classes = 0;     // above 0: labels are 0 to classes - 1
  int64_t vocabulary = 0;  // above 0: samples are token ids, 0 to vocabulary - 1
  int64_t positions = 0;   // largest number of tokens of a sample, and the default; 0: no limit
  std::optional<int64_t> end_token = std::nullopt;  // ends a document in a vocabulary, if known
};

// The settings of a model of any family: a value, cheap to copy. Const functions may be called by
// several threads.
class ModelConfig {
 public:
  // An empty configuration: type() and needs() are empty, and there is no family.
  ModelConfig() = default;
  // `Settings` is the struct of a family, whose member function Family() returns it.
  template <class Settings>
  requires requires { Settings::Family(); }
  ModelConfig(Settings settings) : family_(&Settings::Family()), settings_(std::move(settings)) {}

  const ModelFamily& family() const { return *family_; }
  // Throws std::bad_any_cast if `Settings` is not the struct of family().
  template <class Settings>
  const Settings& As() const {
    return std::any_cast<const Settings&>(settings_);
  }

  const char* type() const;  // family().type()
  DataNeeds needs() const;   // family().Needs(*this)

 private:
  const ModelFamily* family_ = nullptr;
  std::any settings_;
};

// Names of a model's tensors in files of other programs, if they differ from the model's names.
struct WeightNames {
  // Prefix with which a tensor of a file that has no counterpart in the model is looked up again.
  std::string prefix;
  // A tensor of files that must be equal to a tensor of the model.
  struct Copy {
    std::string tensor;      // name of the model's tensor
    std::string difference;  // the rest of the message if they differ: "differs from ..."
  };
  std::map<std::string, Copy> copies;  // key: name in the file
  // Endings of names of tensors in files that are ignored.
  std::vector<std::string> ignored_endings;
};

enum class WeightLayout { kOutIn, kInOut };  // [out, in] as torch.nn.Linear's, or [in, out]

// A family of models. Immutable; exists until the program ends. `config` is always of this family.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;

  virtual const char* type() const = 0;  // model.type of recipes: "mlp"
  // Reads the keys of a recipe's section "model", except `type`. Throws ConfigError, naming the
  // key. Leaves unknown keys to the caller.
  virtual ModelConfig Read(JsonObject& section) const = 0;
  virtual DataNeeds Needs(const ModelConfig& config) const = 0;
  // Returns a section "model", with `type`, from which Read makes `config`.
  virtual nlohmann::ordered_json Section(const ModelConfig& config) const = 0;
  // Returns the content of config.json for exported weights of the dtype `dtype` ("float32"): in
  // the form of transformers if it knows the model, otherwise the section.
  virtual nlohmann::json ConfigJson(const ModelConfig& config, const std::string& dtype) const;

  // Whether the model takes tokens. It then has a vocabulary in its needs, and can continue a text.
  virtual bool TakesTokens() const { return false; }
  // Whether transformers can load weights and config.json of the model.
  bool InTransformers() const { return !ModelTypes().empty(); }
  virtual WeightNames Names() const { return {}; }
  // Returns the values of model_type in config.json of the models that the family implements.
  virtual std::vector<std::string> ModelTypes() const { return {}; }
  // Reads a config.json of transformers with one of ModelTypes. Throws ConfigError, naming the key,
  // for variants that the family does not implement. Ignores other keys.
  virtual ModelConfig ReadConfigJson(JsonObject& config_json) const { return Read(config_json); }
  // Returns `config` of a model that takes samples of several documents, whose tokens see and count
  // the tokens of their own document only: tokens are marked (trainer/base/document_mark.h), and
  // forward passes alternate with backward passes. nullopt if the family has no such models.
  virtual std::optional<ModelConfig> SeparateDocuments(const ModelConfig&) const {
    return std::nullopt;
  }
  // Returns the keys of the section whose values do not show in the shape of any tensor.
  virtual std::vector<const char*> KeysNotInShapes() const { return {}; }
  // Returns the path of the shared library that defines the model, and maybe data and metrics too;
  // empty for the trainer's own models.
  virtual std::string Library(const ModelConfig&) const { return ""; }
  // Returns the layout of the weights of linear layers that the recipe's section `lora` can adapt;
  // nullopt if the models have no such layers.
  virtual std::optional<WeightLayout> AdaptedLayers() const { return std::nullopt; }
  bool HasAdapters() const { return AdaptedLayers().has_value(); }
  // Returns why the model cannot be divided over the `parts` ranks of a tensor-parallel group, as a
  // sentence that names keys and numbers; empty if it can. Precondition: parts > 1.
  virtual std::string TensorParallelRefusal(const ModelConfig& config, int64_t parts) const;
  // Returns the smallest section "model", without `type`, that Read accepts, from which
  // docs/reference is made.
  virtual nlohmann::json LeastSection() const;
};

inline const char* ModelConfig::type() const { return family_ == nullptr ? "" : family_->type(); }
inline DataNeeds ModelConfig::needs() const {
  return family_ == nullptr ? DataNeeds() : family_->Needs(*this);
}

// Returns all families, in the order in which they are listed. Defined in
// trainer/families/registry.cc.
const std::vector<const ModelFamily*>& ModelFamilies();

// Returns the family for the model_type in a config.json of transformers. Throws ConfigError if no
// family implements it.
const ModelFamily& FamilyOfConfigJson(JsonObject& config_json);

// Returns, as JSON, the section "model" of a recipe for the model that the text of a config.json
// describes. Throws TrainError kBadInput, naming `source` and the key.
std::string SectionOfConfigJson(const std::string& text, const std::string& source);

}  // namespace dslaunch
