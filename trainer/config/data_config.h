// Defines the section "data" of a recipe. Its keys have the names of the fields below.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

class JsonObject;
class ModelConfig;

// One of several streams of tokens that are mixed into one data set.
struct DataSource {
  std::string path;
  double weight = 1;  // share of the samples, relative to the other sources
};

struct DataConfig {
  enum class Type {
    kIdx,    // folder with the four IDX files of an MNIST-like data set
    kCifar,  // folder with CIFAR-10's or CIFAR-100's binary version
    // A folder of PNG and JPEG files for each class, or folders train and val of such folders.
    kImageFolder,
    kCsv,     // csv file with columns of numbers, one of which is the label
    kTokens,  // token ids: nanoGPT's or llm.c's .bin, or Megatron's .bin with its .idx
    kText,    // any file, whose bytes are the tokens
    kChat,    // JSON lines of conversations, prompts with completions, or token ids
    kPlugin,  // a data set of a plugin (dslaunch/plugin.h)
  };
  // The way in which the messages of a conversation are joined into a text.
  enum class ChatTemplate { kNone, kChatml, kLlama3, kMistral, kZephyr };
  Type type = Type::kIdx;
  std::string path;          // path of a file or a folder; for tokens, see TokenShards
  int64_t image_size = 224;  // height and width of the model's input in pixels; for image_folder
  bool shuffle = true;
  // If the number of samples is not divisible by the number of ranks: true to drop samples, false
  // to repeat some.
  bool drop_last = false;
  int64_t block_size = 0;  // number of tokens in a sample; 0 for the model's maximum
  // Sources of tokens or text that are mixed; used in place of `path`.
  std::vector<DataSource> sources;
  // True to limit attention and positions to single documents, which end at eos_token_id (tokens),
  // or to single conversations, which packing joins (chat).
  bool documents = false;
  // Token that ends a document (tokens); by default the model's. Required with `documents`.
  std::optional<int64_t> eos_token_id;
  // The fields up to `packing` are for chat.

  ChatTemplate chat_template = ChatTemplate::kNone;
  std::string tokenizer;  // folder with tokenizer.json; empty if the lines have token ids
  bool packing = false;   // true to join several conversations into a sample
  // Path of the data to evaluate on (image_folder, tokens, text, chat and csv).
  std::string val_path;
  // Share of the samples at the end of `path` that is evaluated on instead of `val_path`; for
  // image_folder, the share of each class.
  double val_fraction = 0;
  // The fields up to `label_names` are for csv.

  // Name of the label's column, or its number from 0; empty for the last column.
  std::string label_column;
  // Columns of the features, by name or number; empty for all but the label.
  std::vector<std::string> columns;
  std::vector<std::string> label_names;  // names of the classes; empty if labels are numbers
  // The fields up to `params` are for plugins.

  std::string plugin;         // path of the shared library; by default that of the model
  std::string name;           // name of the data set in the plugin
  std::string params = "{}";  // JSON text of data.params, which the plugin reads
  // Number of micro-batches that a background thread reads ahead; 0 to use no thread.
  int64_t prefetch = 2;
};

// Reads `section` for `model`. Throws ConfigError, naming the key.
DataConfig ReadDataConfig(JsonObject& section, const ModelConfig& model);

// Returns whether samples consist of tokens. False for plugins, whose samples may or may not be
// tokens.
bool HoldsTokens(DataConfig::Type type);

// Returns whether a plugin can export a data set or metric with that name.
bool IsPluginName(const std::string& name);

// Returns the data's name in messages: data.path, or a plugin's data set and library.
std::string DataName(const DataConfig& data);

}  // namespace dslaunch
