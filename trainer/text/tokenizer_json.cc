#include "trainer/text/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/text/sanitize.h"
#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/text/unicode.h"

namespace dslaunch {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = (1 << 24) - 1;
constexpr size_t kMaxSteps = 64;

// The pattern by which the ByteLevel pre-tokenizer divides a text into words.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string RequireString(JsonObject& object, const char* key) {
  std::optional<std::string> text = object.String(key);
  if (!text) object.Fail(key, "is missing");
  return *std::move(text);
}

// Returns a reference to the value of a key, because the value may be too large to copy; null if
// the key is missing.
const json& ValueOf(JsonObject& object, const char* key) {
  static const json kNull;
  object.Ignore({key});
  const auto found = object.value().find(key);
  return found == object.value().end() ? kNull : *found;
}

// Returns the string at `key`, which must consist of one character. Throws if it does not.
std::string RequireCharacter(JsonObject& object, const char* key) {
  std::string text = RequireString(object, key);
  if (text.empty() || text.size() != Utf8Bytes(text[0])) object.Fail(key, "is not one character");
  return text;
}

Search ReadSearch(JsonObject& step) {
  std::optional<JsonObject> pattern = step.Object("pattern");
  if (!pattern) step.Fail("pattern", "is missing");
  const std::optional<std::string> word = pattern->String("String");
  const std::optional<std::string> regex = pattern->String("Regex");
  pattern->RefuseUnknown();
  if (word.has_value() == regex.has_value()) step.Fail("pattern", "has no String or Regex");
  if (word && word->empty()) step.Fail("pattern", "is empty");
  if (word) return Search(*word);
  try {
    return Search(Pattern(*regex));
  } catch (const TrainError& error) {
    step.Fail("pattern", std::string("cannot be used: ") + error.what());
  }
}

PrependScheme ReadPrepend(JsonObject& step) {
  const std::optional<std::string> word = step.Word("prepend_scheme", {"always", "first", "never"});
  // Older versions of the tokenizers package write add_prefix_space, so it is used without
  // prepend_scheme.
  const std::optional<bool> old = step.Bool("add_prefix_space");
  if (!word) return old.value_or(true) ? PrependScheme::kAlways : PrependScheme::kNever;
  if (*word == "first") return PrependScheme::kFirst;
  return *word == "always" ? PrependScheme::kAlways : PrependScheme::kNever;
}

// Calls `read` for the step at `key`. If the step is a Sequence, calls `read` for each step of its
// list at `list_key` instead. Throws if there are more than kMaxSteps steps.
template <class Read>
void ReadSteps(JsonObject& parent, const char* key, const char* list_key, const Read& read,
               size_t& count) {
  std::optional<JsonObject> step = parent.Object(key);
  if (!step) return;
  const auto read_one = [&](JsonObject& one, const auto& self) -> void {
    if (++count > kMaxSteps) one.FailWhole("has too many steps");
    const std::string type = RequireString(one, "type");
    if (type == "Sequence") {
      for (JsonObject& part : one.Objects(list_key)) self(part, self);
    } else {
      read(type, one);
    }
    one.RefuseUnknown();
  };
  read_one(*step, read_one);
}

void ReadNormalizer(JsonObject& root, TokenizerParts& parts) {
  size_t count = 0;
  ReadSteps(
      root, "normalizer", "normalizers",
      [&](const std::string& type, JsonObject& step) {
        if (type == "NFC") {
          parts.normalizer.emplace_back(NfcStep{});
        } else if (type == "Prepend") {
          parts.normalizer.emplace_back(PrependStep{RequireString(step, "prepend")});
        } else if (type == "Replace") {
          parts.normalizer.emplace_back(
              ReplaceStep{ReadSearch(step), RequireString(step, "content")});
        } else {
          step.Fail("type", "is " + Quoted(type) + "; supported: NFC, Prepend, Replace, Sequence");
        }
      },
      count);
}

SplitBehavior ReadBehavior(JsonObject& step) {
  const std::pair<const char*, SplitBehavior> behaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  std::set<std::string> words;
  for (const auto& [word, behavior] : behaviors) words.insert(word);
  const std::optional<std::string> given = step.Word("behavior", words);
  for (const auto& [word, behavior] : behaviors) {
    if (given == word) return behavior;
  }
  step.Fail("behavior", "is missing");
}

void ReadPreTokenizerStep(const std::string& type, JsonObject& step, TokenizerParts& parts) {
  if (parts.bpe.bytes) step.FailWhole("follows ByteLevel, which must be the last");
  if (type == "Split") {
    Search search = ReadSearch(step);
    const SplitBehavior behavior = ReadBehavior(step);
    parts.pre_tokenizer.emplace_back(
        SplitStep{std::move(search), behavior, step.Bool("invert").value_or(false)});
  } else if (type == "Digits") {
    parts.pre_tokenizer.emplace_back(DigitsStep{step.Bool("individual_digits").value_or(false)});
  } else if (type == "Metaspace") {
    std::string replacement = RequireCharacter(step, "replacement");
    const PrependScheme prepend = ReadPrepend(step);
    step.Ignore({"str_rep"});
    parts.pre_tokenizer.emplace_back(
        MetaspaceStep{std::move(replacement), prepend, step.Bool("split").value_or(true)});
  } else if (type == "ByteLevel") {
    ByteLevelStep bytes{.add_prefix_space = step.Bool("add_prefix_space").value_or(true)};
    step.Ignore({"trim_offsets"});
    if (step.Bool("use_regex").value_or(true)) bytes.pattern.emplace(kByteLevelPattern);
    parts.pre_tokenizer.emplace_back(std::move(bytes));
    parts.bpe.bytes = true;
  } else {
    step.Fail("type",
              "is " + Quoted(type) + "; supported: Split, Digits, Metaspace, ByteLevel, Sequence");
  }
}

void ReadPreTokenizer(JsonObject& root, TokenizerParts& parts) {
  size_t count = 0;
  ReadSteps(
      root, "pre_tokenizer", "pretokenizers",
      [&](const std::string& type, JsonObject& step) { ReadPreTokenizerStep(type, step, parts); },
      count);
}

void ReadDecoderStep(const std::string& type, JsonObject& step, std::vector<DecoderStep>& steps) {
  constexpr int64_t kMaxStrip = 1 << 20;
  if (type == "ByteLevel") {
    step.Ignore({"add_prefix_space", "trim_offsets", "use_regex"});
    steps.emplace_back(ByteLevelDecode{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ByteFallbackDecode{});
  } else if (type == "Fuse") {
    steps.emplace_back(FuseDecode{});
  } else if (type == "Replace") {
    steps.emplace_back(ReplaceDecode{ReadSearch(step), RequireString(step, "content")});
  } else if (type == "Strip") {
    const auto count = [&](const char* key) {
      return static_cast<size_t>(step.Int(key, 0, kMaxStrip).value_or(0));
    };
    steps.emplace_back(
        StripDecode{RequireCharacter(step, "content"), count("start"), count("stop")});
  } else if (type == "Metaspace") {
    std::string replacement = RequireCharacter(step, "replacement");
    step.Ignore({"str_rep", "split"});
    steps.emplace_back(MetaspaceDecode{std::move(replacement), ReadPrepend(step)});
  } else {
    step.Fail("type", "is " + Quoted(type) +
                          "; supported: ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, "
                          "Sequence");
  }
}

// Returns the ids of a token that a template names. Throws if the token or its ids are not valid.
std::vector<int32_t> TemplateIds(JsonObject& special_tokens, const std::string& name,
                                 int64_t vocab_size) {
  std::optional<JsonObject> token = special_tokens.Object(name.c_str());
  if (!token) special_tokens.FailWhole("has no " + Quoted(name) + ", which the template names");
  const json& ids = ValueOf(*token, "ids");
  if (!ids.is_array()) token->Fail("ids", "is not a list");
  std::vector<int32_t> found;
  for (const json& id : ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      token->Fail("ids", "has an element that is not a token's number");
    }
    found.push_back(id.get<int32_t>());
  }
  return found;
}

void ReadTemplate(JsonObject& step, TokenizerParts& parts) {
  JsonObject special_tokens = step.ObjectOrEmpty("special_tokens");
  step.Ignore({"pair"});
  bool after = false;
  for (JsonObject& piece : step.Objects("single")) {
    if (piece.Object("Sequence")) {
      if (after) step.Fail("single", "has the text twice");
      after = true;
      continue;
    }
    std::optional<JsonObject> token = piece.Object("SpecialToken");
    if (!token) piece.FailWhole("is neither a Sequence nor a SpecialToken");
    const std::vector<int32_t> ids =
        TemplateIds(special_tokens, RequireString(*token, "id"), parts.vocab_size);
    std::vector<int32_t>& list = after ? parts.after : parts.before;
    list.insert(list.end(), ids.begin(), ids.end());
  }
  if (!after) step.Fail("single", "lacks the text");
}

void ReadPostProcessor(JsonObject& root, TokenizerParts& parts) {
  size_t count = 0;
  bool has_template = false;
  ReadSteps(
      root, "post_processor", "processors",
      [&](const std::string& type, JsonObject& step) {
        if (type == "ByteLevel") {
          step.Ignore({"add_prefix_space", "trim_offsets", "use_regex"});
        } else if (type == "TemplateProcessing" && !std::exchange(has_template, true)) {
          ReadTemplate(step, parts);
        } else {
          step.Fail("type",
                    "is " + Quoted(type) + "; supported: ByteLevel, and TemplateProcessing once");
        }
      },
      count);
}

void ReadVocabulary(JsonObject& model, TokenizerParts& parts) {
  const json& vocabulary = ValueOf(model, "vocab");
  if (!vocabulary.is_object()) model.Fail("vocab", "is not an object of tokens and numbers");
  std::set<int64_t> ids;
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(kMaxId)) {
      model.Fail("vocab", "gives " + Quoted(token) + " a number that is not from 0 to " +
                              std::to_string(kMaxId));
    }
    if (!ids.insert(id.get<int64_t>()).second) {
      model.Fail("vocab", "gives " + Quoted(token) + " the number of another token");
    }
    parts.ids.emplace(token, id.get<int32_t>());
  }
}

// Returns both tokens of a merge, which is "a b" or ["a", "b"]; nullopt for other forms.
std::optional<std::pair<std::string, std::string>> MergedTokens(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (!merge.is_string()) return std::nullopt;
  const auto text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return std::nullopt;
  }
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

void ReadMerges(JsonObject& model, TokenizerParts& parts) {
  const json& merges = ValueOf(model, "merges");
  if (!merges.is_array()) model.Fail("merges", "is not a list");
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto tokens = MergedTokens(merges[i]);
    const std::string place = "merges[" + std::to_string(i) + "]";
    if (!tokens) model.Fail(place, "is not a pair of tokens");
    const auto id_of = [&](const std::string& token) {
      const auto found = parts.ids.find(token);
      if (found == parts.ids.end()) {
        model.Fail(place, "needs the token " + Quoted(token) + ", which the vocabulary lacks");
      }
      return found->second;
    };
    const auto& [left, right] = *tokens;
    parts.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
}

void ReadModel(JsonObject& root, TokenizerParts& parts) {
  std::optional<JsonObject> model = root.Object("model");
  if (!model) root.Fail("model", "is missing");
  const std::string type = model->String("type").value_or("BPE");  // older files lack the type
  if (type != "BPE") model->Fail("type", "is " + Quoted(type) + "; only BPE is supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model->String(key).value_or("").empty()) model->Fail(key, "is not supported");
  }
  if (model->Number("dropout", 0).value_or(0) != 0) model->Fail("dropout", "is not supported");
  BpeOptions& bpe = parts.bpe;
  bpe.fuse_unk = model->Bool("fuse_unk").value_or(false);
  bpe.byte_fallback = model->Bool("byte_fallback").value_or(false);
  bpe.ignore_merges = model->Bool("ignore_merges").value_or(false);
  if (bpe.byte_fallback && bpe.bytes) {
    model->Fail("byte_fallback", "is not supported together with ByteLevel");
  }
  ReadVocabulary(*model, parts);
  ReadMerges(*model, parts);
  if (const std::optional<std::string> unk = model->String("unk_token")) {
    const auto found = parts.ids.find(*unk);
    if (found == parts.ids.end()) {
      model->Fail("unk_token", "is " + Quoted(*unk) + ", which the vocabulary lacks");
    }
    bpe.unk = found->second;
  }
  model->RefuseUnknown();
}

AddedToken ReadAddedToken(JsonObject& object) {
  AddedToken token;
  token.id = static_cast<int32_t>(object.Int("id", 0, kMaxId).value_or(0));
  token.content = RequireString(object, "content");
  token.special = object.Bool("special").value_or(false);
  token.normalized = object.Bool("normalized").value_or(!token.special);
  token.lstrip = object.Bool("lstrip").value_or(false);
  token.rstrip = object.Bool("rstrip").value_or(false);
  if (object.Bool("single_word").value_or(false)) {
    object.Fail("single_word", "is true, which is not supported");
  }
  object.RefuseUnknown();
  return token;
}

// Reads the added tokens. The tokenizers package itself numbers tokens that the vocabulary lacks,
// so an id that differs from the package's id throws.
void ReadAddedTokens(JsonObject& root, TokenizerParts& parts) {
  const json& list = ValueOf(root, "added_tokens");
  if (list.is_null() || (list.is_array() && list.empty())) return;
  const auto vocabulary_size = static_cast<int64_t>(parts.ids.size());
  int64_t last = -1;
  for (JsonObject& object : root.Objects("added_tokens")) {
    AddedToken token = ReadAddedToken(object);
    if (token.content.empty()) continue;
    const auto known = parts.ids.find(token.content);
    const int64_t expected =
        known != parts.ids.end() ? known->second : std::max(last + 1, vocabulary_size);
    if (token.id != expected) {
      object.Fail("id", "is " + std::to_string(token.id) + "; " + Quoted(token.content) +
                            " has the number " + std::to_string(expected) +
                            " for the tokenizers package");
    }
    last = std::max<int64_t>(last, token.id);
    parts.ids.emplace(token.content, token.id);
    parts.added_tokens.push_back(std::move(token));
  }
}

// Sets the size of the vocabulary. Memory is allocated by this size, so it throws if most ids are
// unused.
void CountVocabulary(JsonObject& root, TokenizerParts& parts) {
  constexpr int64_t kFreeIds = 1 << 16;
  for (const auto& [token, id] : parts.ids) {
    parts.vocab_size = std::max<int64_t>(parts.vocab_size, id + int64_t{1});
  }
  const auto tokens = static_cast<int64_t>(parts.ids.size());
  if (parts.vocab_size <= 2 * tokens + kFreeIds) return;
  root.FailWhole("has " + std::to_string(tokens) + " tokens with numbers up to " +
                 std::to_string(parts.vocab_size - 1) + "; most numbers must be in use");
}

}  // namespace

TokenizerParts ReadTokenizerJson(const json& json, const std::string& source) {
  TokenizerParts parts;
  JsonObject root(json, source, "");
  root.Ignore({"version", "truncation", "padding"});
  ReadNormalizer(root, parts);
  ReadPreTokenizer(root, parts);
  ReadModel(root, parts);
  ReadAddedTokens(root, parts);
  CountVocabulary(root, parts);
  ReadPostProcessor(root, parts);
  size_t count = 0;
  ReadSteps(
      root, "decoder", "decoders",
      [&](const std::string& type, JsonObject& step) {
        ReadDecoderStep(type, step, parts.decoder);
      },
      count);
  root.RefuseUnknown();
  return parts;
}

}  // namespace dslaunch
