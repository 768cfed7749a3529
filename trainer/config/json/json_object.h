// Reads a JSON configuration strictly: keys that no getter reads are errors.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

enum class JsonLists { kNotEmpty, kMayBeEmpty };

enum class JsonComments { kAccept, kRefuse };  // comments such as this one, and /* */

enum class WordCase { kExact, kAny };  // kAny ignores case, as DeepSpeed does for some words

using JsonType = nlohmann::json::value_t;

// Parses a text, which `source` names in messages. Throws kBadInput for malformed text, for a key
// that is given twice, and for more than 64 nested levels.
nlohmann::json ParseJson(const std::string& text, const std::string& source,
                         JsonComments comments = JsonComments::kAccept);

// Returns the numeric values of a JSON object by name. `source` and the errors are those of
// ParseJson.
std::map<std::string, double> NumbersOf(const std::string& text, const std::string& source);

// Returns the known word that is closest to `word`; nullopt if no known word is so close that
// `word` may be a misspelling of it.
std::optional<std::string> DidYouMean(std::string_view word, const std::set<std::string>& known);

// A view of an object inside a parsed configuration. Getters return nullopt for a key that is
// absent or null. If a value has the wrong type or is out of range, they throw a ConfigError
// (kBadInput) with the full path of the key.
class JsonObject {
 public:
  // Creates a view of `json`, which must outlive the view. `path` is the path of the object for
  // messages, such as "" or "engine.optimizer".
  JsonObject(const nlohmann::json& json, std::string source, std::string path);

  // Returns a whole number. The form 5e8 is accepted too, because it is common for bucket sizes.
  std::optional<int64_t> Int(const char* key, int64_t min,
                             int64_t max = std::numeric_limits<int64_t>::max());
  std::optional<double> Number(const char* key, double min,
                               double max = std::numeric_limits<double>::max());
  std::optional<std::vector<double>> Numbers(const char* key, size_t count, double min, double max);
  std::optional<bool> Bool(const char* key);
  std::optional<std::string> String(const char* key);
  // Returns a string, or the text of a whole number.
  std::optional<std::string> StringOrInt(const char* key);
  bool Has(const char* key) const;  // returns whether the key is given and not null
  // Returns the value's type; JsonType::null if the key is absent.
  JsonType TypeOf(const char* key) const;
  // Returns a string that is one of `words`. With kAny, `words` and the result are in lower case.
  std::optional<std::string> Word(const char* key, const std::set<std::string>& words,
                                  WordCase words_case = WordCase::kExact);
  // Returns a section. `meaning` is the description of the key for docs/reference.
  std::optional<JsonObject> Object(const char* key, const char* meaning = "");
  // Returns a view of `json` with this object's path in messages. `json` must outlive the view.
  JsonObject Over(const nlohmann::json& json) const { return JsonObject(json, source_, path_); }
  const nlohmann::json& value() const { return json_; }
  // Returns an object as JSON text, whose keys are not checked; "{}" if the key is absent or null.
  std::string ObjectText(const char* key);
  // Returns an object, which has no keys if the key is absent or null.
  JsonObject ObjectOrEmpty(const char* key, const char* meaning = "");
  // Returns a list, which is empty if the key is absent or null. An empty list in the configuration
  // is refused, unless the getter allows it.
  std::vector<JsonObject> Objects(const char* key);
  std::vector<std::string> Strings(const char* key, JsonLists lists = JsonLists::kNotEmpty);

  // Handles keys of other programs that dslaunch does not support. Accepts values that turn a key
  // off (null, false, {}, {"enabled": false}) and throws kBadInput with `why` for any other value.
  void RefuseUnlessOff(const std::set<std::string>& keys, const std::string& why);
  // Handles a key of which only the value `standard` is accepted, and throws kBadInput with `why`
  // for any other value. An object is compared key by key, and keys that `standard` lacks are
  // unknown. If `standard` has {"enabled": false} and the object is not enabled, its other values
  // are ignored.
  void RefuseUnlessStandard(const char* key, const nlohmann::json& standard,
                            const std::string& why);

  // Accepts these keys with any value.
  void Ignore(const std::set<std::string>& keys) { known_.insert(keys.begin(), keys.end()); }

  // Throws kBadInput for every key that no getter has read. Call it last.
  void RefuseUnknown() const;

  // Throws kBadInput with the message "<source>: <path of key> <problem>".
  [[noreturn]] void Fail(const std::string& key, const std::string& problem) const;
  // Throws kBadInput for the object, with the message "<source>: <path>: <problem>".
  [[noreturn]] void FailWhole(const std::string& problem) const;

 private:
  const nlohmann::json* Find(const char* key);
  std::optional<std::string> ReadString(const char* key);
  // Adds the key to the KeyRecord of this thread, which must exist, with its possible values in
  // words and as JSON Schema (null for a section).
  void Note(const char* key, const std::string& value, const nlohmann::json& schema) const;
  [[noreturn]] void FailType(const std::string& key, const nlohmann::json& value,
                             const std::string& wanted) const;
  std::string PlaceOf(const std::string& key) const;

  const nlohmann::json& json_;
  std::string source_;
  std::string path_;
  std::set<std::string> known_;
};

}  // namespace dslaunch
