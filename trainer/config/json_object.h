// Strict reading of a JSON configuration: every key is asked for, and what nobody asked for is an
// error.
#pragma once

#include <cstdint>
#include <functional>
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

enum class JsonComments { kAccept, kRefuse };  // such as this one, and /* */

// Malformed text, a key given twice and more than 64 levels are kBadInput; `source` names the text
// in messages.
nlohmann::json ParseJson(const std::string& text, const std::string& source,
                         JsonComments comments = JsonComments::kAccept);

// The numeric values of a JSON object, by name; `source` as ParseJson has it.
std::map<std::string, double> NumbersOf(const std::string& text, const std::string& source);

// The known word closest to `word`, if one is close enough to be a slip of the keyboard.
std::optional<std::string> DidYouMean(std::string_view word, const std::set<std::string>& known);

// A view of one object inside a parsed configuration. Getters return nullopt for a key that is
// absent or null, and throw kBadInput, a ConfigError with the full path of the key, for a value of
// the wrong type or out of range.
class JsonObject {
 public:
  // `path` is the object's place, for messages: "", "engine", "engine.optimizer". `json` must
  // outlive this.
  JsonObject(const nlohmann::json& json, std::string source, std::string path);

  // A whole number; 5e8 is one too, as people write bucket sizes.
  std::optional<int64_t> Int(const char* key, int64_t min,
                             int64_t max = std::numeric_limits<int64_t>::max());
  std::optional<double> Number(const char* key, double min,
                               double max = std::numeric_limits<double>::max());
  std::optional<std::vector<double>> Numbers(const char* key, size_t count, double min, double max);
  std::optional<bool> Bool(const char* key);
  std::optional<std::string> String(const char* key);
  // A text, or a whole number as one.
  std::optional<std::string> StringOrInt(const char* key);
  bool Has(const char* key) const;  // and not null
  bool HasString(const char* key) const;
  bool IsBool(const char* key) const;
  // Whether the value is "auto", which the caller takes.
  bool IsAuto(const char* key);
  // A string out of `words`.
  std::optional<std::string> Word(const char* key, const std::set<std::string>& words);
  // The same in any case, as DeepSpeed reads some; `words` are in lower case, and so is the answer.
  std::optional<std::string> WordInAnyCase(const char* key, const std::set<std::string>& words);
  // Sections; `meaning` as Explain has it.
  std::optional<JsonObject> Object(const char* key, const char* meaning = "");
  // A view of `json` with this object's place in messages. `json` must outlive it.
  JsonObject Over(const nlohmann::json& json) const { return JsonObject(json, source_, path_); }
  const nlohmann::json& value() const { return json_; }
  // An object as JSON text, unread; "{}" where it is absent or null.
  std::string ObjectText(const char* key);
  // An object without keys where it is absent or null.
  JsonObject ObjectOrEmpty(const char* key, const char* meaning = "");
  // Lists; empty where the key is absent or null. An empty list is refused, unless it may be one.
  std::vector<JsonObject> Objects(const char* key);
  std::vector<std::string> Strings(const char* key, JsonLists lists = JsonLists::kNotEmpty);

  // Keys that others give a meaning which this program does not have. Passes over those that ask
  // for nothing (null, false, {}, {"enabled": false}) and refuses the rest by name.
  void RefuseUnlessOff(const std::set<std::string>& keys, const std::string& why);
  // The same for a key of which only the value `standard` asks for nothing. An object's keys are
  // looked at one by one, and those that `standard` lacks are unknown; where `standard` has
  // {"enabled": false} and the object is not enabled, its other values mean nothing.
  void RefuseUnlessStandard(const char* key, const nlohmann::json& standard,
                            const std::string& why);

  // Accepts these keys with any value.
  void Ignore(const std::set<std::string>& keys) { known_.insert(keys.begin(), keys.end()); }

  // For the KeyRecord of this thread, if there is one: the meaning of the key that was asked for
  // last, with its default.
  void Explain(const char* meaning) const;

  // Refuses every key that no getter asked for. Call it last.
  void RefuseUnknown() const;

  // Throws kBadInput: "<source>: <path of key> <problem>".
  [[noreturn]] void Fail(const std::string& key, const std::string& problem) const;
  // The same of the object: "<source>: <path>: <said>".
  [[noreturn]] void FailWhole(const std::string& said) const;

 private:
  const nlohmann::json* Find(const char* key);
  std::optional<std::string> ReadString(const char* key);
  // For the KeyRecord of this thread, if there is one: the key, and what its value may be in words
  // and as JSON Schema (null: a section).
  void Note(const char* key, const std::function<std::string()>& value,
            const std::function<nlohmann::json()>& schema) const;
  [[noreturn]] void FailType(const std::string& key, const nlohmann::json& value,
                             const std::string& wanted) const;
  std::string PlaceOf(const std::string& key) const;

  const nlohmann::json& json_;
  std::string source_;
  std::string path_;
  std::set<std::string> known_;
};

}  // namespace dslaunch
