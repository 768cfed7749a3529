// The section "data" of a recipe. Its keys have the names of the fields below.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

class JsonObject;
class ModelConfig;

// One of several streams of tokens that are mixed.
struct DataSource {
  std::string path;
  double weight = 1;  // share of the samples, relative to the other sources
};

struct DataConfig {
  enum class Type {
    kIdx,          // a folder with the four IDX files of an MNIST-like data set
    kCifar,        // a folder with CIFAR-10's or CIFAR-100's binary version
    kImageFolder,  // a folder of PNG and JPEG files for each class; or folders train and val
    kCsv,          // columns of numbers, and one with the label
    kTokens,       // token ids: nanoGPT's or llm.c's .bin, or Megatron's .bin with its .idx
    kText,         // any file; its bytes are the tokens
    kChat,         // JSON lines of conversations, prompts with completions, or token ids
    kPlugin,       // a data set of the user's own (dslaunch/plugin.h)
  };
  // How the messages of a conversation are joined to a text.
  enum class ChatTemplate { kNone, kChatml, kLlama3, kMistral, kZephyr };
  Type type = Type::kIdx;
  std::string path;          // a file, or a folder (tokens: see TokenShards)
  int64_t image_size = 224;  // image_folder: height and width in pixels of the model's input
  bool shuffle = true;
  // Whether to drop samples, instead of repeating some, if their number is not divisible by the
  // ranks.
  bool drop_last = false;
  int64_t block_size = 0;           // tokens of a sample; 0: the model's maximum
  std::vector<DataSource> sources;  // tokens and text: several sources, used in place of `path`
  // tokens: whether to keep attention and positions within documents, which end at eos_token_id.
  // chat: within conversations, which packing joins.
  bool documents = false;
  std::optional<int64_t> eos_token_id;  // tokens: default: the model's; required with `documents`
  // For chat:
  ChatTemplate chat_template = ChatTemplate::kNone;
  std::string tokenizer;    // folder of tokenizer.json; empty: the lines have token ids
  bool packing = false;     // join conversations into samples
  std::string val_path;     // image_folder, tokens, text, chat and csv: data to evaluate on
  double val_fraction = 0;  // share at the end of `path` used instead; image_folder: of each class
  // For csv:
  std::string label_column;              // name or number from 0; empty: last column
  std::vector<std::string> columns;      // features, likewise; empty: all but the label
  std::vector<std::string> label_names;  // names of the classes; empty: labels are numbers
  // For plugin:
  std::string plugin;         // path of the shared library; default: the model's
  std::string name;           // name of the plugin's data set
  std::string params = "{}";  // data.params as JSON text; the plugin reads it
  int64_t prefetch = 2;       // micro-batches that a background thread reads ahead; 0: no thread
};

// Reads `section` for `model`. Throws ConfigError, naming the key.
DataConfig ReadDataConfig(JsonObject& section, const ModelConfig& model);

// Whether samples consist of tokens. False for plugins, which may have tokens or not.
bool HoldsTokens(DataConfig::Type type);

// Returns whether a plugin can export a data set or metric of that name.
bool IsPluginName(const std::string& name);

// Returns the name of the data in messages: data.path, or a plugin's data set and library.
std::string DataName(const DataConfig& data);

}  // namespace dslaunch
