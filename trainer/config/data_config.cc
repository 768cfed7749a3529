#include "trainer/config/data_config.h"

#include <algorithm>
#include <set>

#include "trainer/config/json/key_table.h"
#include "trainer/config/model_family.h"

namespace dslaunch {
namespace {

constexpr char kDefaultDataPath[] = "/usr/share/datasets/fashion-mnist";
constexpr int64_t kMaxUnits = int64_t{1} << 20;

KeyTable<DataConfig> DataKeys() {
  using D = DataConfig;
  return {
      Required(WordKey("type", &D::type,
                       {"idx", "cifar", "image_folder", "csv", "tokens", "text", "chat", "plugin"},
                       "required; `idx`: a folder with the four files of an MNIST-like data "
                       "set; `cifar`: a folder with CIFAR-10's or CIFAR-100's binary version; "
                       "`image_folder`: a folder with one of PNG and JPEG files for each class, "
                       "or `train` and `val` of such folders; `csv`: numbers, of which one "
                       "column is the label; `tokens`: token ids (nanoGPT's or llm.c's .bin, or "
                       "Megatron's .bin with its .idx); `text`: any file, whose bytes are the "
                       "tokens; `chat`: JSON lines of conversations, of which the answers are "
                       "learned; `plugin`: a data set of your own, in a shared library"),
               "is missing; known: idx, cifar, image_folder, csv, tokens, text, chat and plugin"),
      TextKey("path", &D::path,
              "a file, or a folder; tokens: with train.bin and val.bin, or of .bin files that are "
              "read in the order of their names; default for `idx`: "
              "/usr/share/datasets/fashion-mnist; a plugin may do without; `--data` overrides "
              "it"),
      BoolKey("shuffle", &D::shuffle, ""),
      BoolKey("drop_last", &D::drop_last,
              "if the number of samples is not a multiple of the number of ranks: drop the "
              "last samples instead of repeating some"),
      IntKey("prefetch", &D::prefetch, {0, 1 << 16},
             "micro-batches that a background thread reads ahead; 0: no thread")};
}

void ReadSources(JsonObject& object, const char* key, DataConfig& data) {
  for (JsonObject& item : object.Objects(key)) {
    DataSource source;
    source.path = item.String("path").value_or("");
    ExplainLastKey("required; a file or folder, as `data.path`");
    if (source.path.empty()) item.Fail("path", "is missing");
    source.weight = item.Number("weight", 0).value_or(source.weight);
    ExplainLastKey("share of the samples, relative to the other sources; default 1; not 0");
    if (source.weight == 0) item.Fail("weight", "is 0; leave the source out");
    item.RefuseUnknown();
    data.sources.push_back(std::move(source));
  }
  // A key's meaning from the table is added to the key that was read last.
  if (object.Objects(key).size() > 1000) object.Fail(key, "has more than 1000 sources");
}

nlohmann::ordered_json ShowSources(const DataConfig& data) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DataSource& source : data.sources) {
    list.push_back({{"path", source.path}, {"weight", source.weight}});
  }
  return list;
}

// A group of keys that only some types of data have.
struct OfDataTypes {
  const char* types;  // names of these types, for messages
  bool (*apply)(DataConfig::Type type);
  KeyTable<DataConfig> keys;
};

const std::vector<OfDataTypes>& KeysOfDataTypes() {
  using D = DataConfig;
  using Type = DataConfig::Type;
  static const std::vector<OfDataTypes> kKeys = {
      {"tokens, text and chat",
       HoldsTokens,
       {IntKey("block_size", &D::block_size, {1, kMaxUnits},
               "tokens of a sample; default: as many as the model takes")}},
      {"tokens and text",
       [](Type type) { return type == Type::kTokens || type == Type::kText; },
       {{"sources", ReadSources, ShowSources,
         "several files or folders instead of `path`, each an object with `path` and `weight` "
         "(default 1): "
         "samples come from them in proportion to the weights, in an order that depends on nothing "
         "else. An epoch has as many samples as all of them"}}},
      {"tokens and chat",
       [](Type type) { return type == Type::kTokens || type == Type::kChat; },
       {BoolKey("documents", &D::documents,
                "whether tokens see only the document, or with `packing` the conversation, that "
                "they are in, and their positions count from its begin; the last token of a "
                "document, `eos_token_id`, has no target. Not in pipelines")}},
      {"the type chat",
       [](Type type) { return type == Type::kChat; },
       {WordKey("template", &D::chat_template, {"none", "chatml", "llama3", "mistral", "zephyr"},
                "how `messages` become a text, as the model was trained or will be asked; `none`: "
                "the lines have no `messages`"),
        TextKey("tokenizer", &D::tokenizer,
                "folder of the model's tokenizer.json and tokenizer_config.json; lines of token "
                "ids need none"),
        BoolKey("packing", &D::packing,
                "whether a sample has as many conversations as fit into it, instead of one and "
                "padding")}},
      {"the type tokens",
       [](Type type) { return type == Type::kTokens; },
       {IntKey("eos_token_id", &D::eos_token_id, {0, int64_t{1} << 30},
               "with `documents`: token that ends a document; default: the model's")}},
      {"image_folder, csv, tokens, text and chat; idx and cifar have test files of their own, and "
       "a "
       "plugin "
       "makes the data to evaluate on itself",
       [](Type type) {
         return type != Type::kIdx && type != Type::kCifar && type != Type::kPlugin;
       },
       {TextKey("val_path", &D::val_path,
                "data for evaluation, instead of `val_fraction`: a file or folder, as `path`"),
        NumberKey("val_fraction", &D::val_fraction, {0, 1},
                  "fraction at the end of `path`, or of each class of `image_folder`, that is kept "
                  "for evaluation; below 1")}},
      {"the type plugin",
       [](Type type) { return type == Type::kPlugin; },
       {TextKey("plugin", &D::plugin,
                "the plugin's shared library; default: the model's, if that is a plugin's"),
        TextKey("name", &D::name,
                "required; which data set of the plugin (`DSLAUNCH_DATASET`); `dslaunch train "
                "--list --plugin LIB.so` lists them"),
        ObjectTextKey("params", &D::params, "parameters for the plugin's data set")}},
      {"image_folder",
       [](Type type) { return type == Type::kImageFolder; },
       {IntKey("image_size", &D::image_size, {1, 4096},
               "height and width of the images that the model gets, in pixels: the shorter side "
               "is scaled to that and the centre kept")}},
      {"csv",
       [](Type type) { return type == Type::kCsv; },
       {{"label_column",
         [](JsonObject& object, const char* key, D& data) {
           data.label_column = object.StringOrInt(key).value_or("");
         },
         [](const D& data) { return data.label_column; },
         "name of the label column, or its number from 0; default: the last column"},
        TextsKey("columns", &D::columns,
                 "the columns of the features in the order of the model's inputs, by names or "
                 "numbers from 0; the others are passed over; default: all but the label"),
        TextsKey("label_names", &D::label_names,
                 "names of the classes, from class 0 on, where the label column has names; "
                 "default: labels are numbers from 0")}}};
  return kKeys;
}

void CheckModelTakes(JsonObject& object, const ModelConfig& model, const DataConfig& data) {
  const DataNeeds needs = model.needs();
  const bool takes_any = needs.classes == 0 && needs.vocabulary == 0;
  if (takes_any || data.type == DataConfig::Type::kPlugin) return;
  if ((needs.vocabulary > 0) == HoldsTokens(data.type)) return;
  object.Fail("type", std::string("does not fit the model: ") + model.type() + " takes " +
                          (needs.vocabulary > 0 ? "tokens, text or chat"
                                                : "idx, cifar, image_folder or csv"));
}

void CheckDocuments(const JsonObject& object, const ModelConfig& model, const DataConfig& data) {
  if (!data.documents) return;
  if (!model.family().SeparateDocuments(model)) {
    object.Fail("documents", std::string("is true, but a model of type ") + model.type() +
                                 " cannot keep documents apart; remove it");
  }
  if (data.type == DataConfig::Type::kChat && !data.packing) {
    object.Fail("documents",
                "is true, but without packing each sample is one conversation; remove it, or set "
                "packing");
  }
  if (data.type == DataConfig::Type::kTokens && !data.eos_token_id) {
    object.Fail("eos_token_id",
                "is missing; the model does not give a single token that ends a document");
  }
}

// Refuses values that contradict each other or the model.
void CheckData(const JsonObject& object, const ModelConfig& model, const DataConfig& data) {
  const int64_t positions = model.needs().positions;
  if (positions > 0 && data.block_size > positions) {
    object.Fail("block_size", "is " + std::to_string(data.block_size) +
                                  ", but the model takes at most " + std::to_string(positions) +
                                  " tokens; change one of them");
  }
  if (HoldsTokens(data.type) && positions == 0 && data.block_size == 0) {
    object.Fail("block_size",
                "is missing; this model does not give the number of tokens in a sample");
  }
  if (!data.sources.empty() && !data.path.empty()) {
    object.Fail("sources", "and path exclude each other; keep one of them");
  }
  if (!data.sources.empty() && data.val_fraction > 0) {
    object.Fail("val_fraction", "is for a single path; with sources, give val_path");
  }
  if (data.val_fraction == 1) object.Fail("val_fraction", "is 1, which leaves no training data");
  if (!data.val_path.empty() && data.val_fraction > 0) {
    object.Fail("val_fraction", "and val_path exclude each other; keep one of them");
  }
  if (data.type == DataConfig::Type::kPlugin && data.plugin.empty()) {
    object.Fail("plugin", "is missing; give the path of the plugin's shared library");
  }
  if (data.type == DataConfig::Type::kPlugin && !IsPluginName(data.name)) {
    object.Fail("name", data.name.empty()
                            ? "is missing; give the name of a DSLAUNCH_DATASET of the plugin"
                            : "is \"" + data.name + "\"; names have letters, digits and _");
  }
  const std::set<std::string> distinct(data.label_names.begin(), data.label_names.end());
  if (distinct.size() < data.label_names.size()) {
    object.Fail("label_names", "has a name twice; give each class one name");
  }
}

}  // namespace

bool HoldsTokens(DataConfig::Type type) {
  return type == DataConfig::Type::kTokens || type == DataConfig::Type::kText ||
         type == DataConfig::Type::kChat;
}

bool IsPluginName(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

DataConfig ReadDataConfig(JsonObject& section, const ModelConfig& model) {
  DataConfig data = ReadKeys(section, DataKeys());
  CheckModelTakes(section, model, data);
  if (data.type == DataConfig::Type::kIdx && !section.Has("path")) data.path = kDefaultDataPath;
  for (const OfDataTypes& of : KeysOfDataTypes()) {
    ReadKeysIf(of.apply(data.type), section, of.keys, data,
               std::string("is a setting of ") + of.types + "; remove it");
  }
  const bool plugin = data.type == DataConfig::Type::kPlugin;
  if (plugin && data.plugin.empty()) data.plugin = model.family().Library(model);
  section.RefuseUnknown();
  if (!data.eos_token_id) data.eos_token_id = model.needs().end_token;
  CheckData(section, model, data);
  CheckDocuments(section, model, data);
  return data;
}

std::string DataName(const DataConfig& data) {
  if (!data.sources.empty()) {
    return data.sources.front().path + " and " + std::to_string(data.sources.size() - 1) +
           " more sources";
  }
  if (data.type != DataConfig::Type::kPlugin) return data.path;
  return data.name + " of " + data.plugin + (data.path.empty() ? "" : " (" + data.path + ")");
}

}  // namespace dslaunch
