#include "trainer/config/json/json_object.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text/sanitize.h"
#include "trainer/config/json/config_error.h"
#include "trainer/config/json/key_record.h"
#include "trainer/config/json/other_names.h"

namespace dslaunch {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr size_t kMaxReasonBytes = 400;
constexpr size_t kMaxPlaceBytes = 400;

// Returns the edit distance between two words. Swapping two neighboring characters is one edit.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// Returns the value as an integer; nullopt if it is not a whole number or does not fit.
std::optional<int64_t> AsWhole(const json& value) {
  constexpr double kMaxExact = 9007199254740992.0;  // 2^53
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) != number || std::abs(number) > kMaxExact) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

// Returns the value as it is written in the file, shortened if it is long.
std::string Shown(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 40)
    return SanitizeForTerminal(text.substr(0, 40)) + "...";  // may split a multi-byte character
  return SanitizeForTerminal(text);
}

// Returns a key's path for messages. The path's words are from the file, so they may have any
// content.
std::string ShownPlace(const std::string& path) {
  if (path.size() > kMaxPlaceBytes)
    return SanitizeForTerminal(path.substr(0, kMaxPlaceBytes)) + "...";
  return SanitizeForTerminal(path);
}

std::string Listed(const std::set<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

// Returns the known word for which `word` is another program's name or a misspelling; nullopt if
// there is none.
std::optional<std::string> WhatIsMeant(std::string_view word, const std::set<std::string>& known) {
  const std::optional<std::string> other = NameHere(word, known);
  return other ? other : DidYouMean(word, known);
}

bool IsRecorded() { return KeyRecord::Current() != nullptr; }

template <class T>
json BoundedSchema(const char* type, T min, T max) {
  using Limits = std::numeric_limits<T>;
  json schema = {{"type", type}};
  if (min != Limits::lowest()) schema["minimum"] = min;
  if (max != Limits::max()) schema["maximum"] = max;
  return schema;
}

// Returns the words as a choice: "`a`, `b` or `c`".
std::string ChoiceText(const std::set<std::string>& words) {
  std::string text;
  size_t left = words.size();
  for (const std::string& word : words) {
    text += (text.empty() ? "" : left == 1 ? " or " : ", ") + ("`" + word + "`");
    --left;
  }
  return text;
}

}  // namespace

json ParseJson(const std::string& text, const std::string& source, JsonComments comments) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  // Keys of the objects that are being read, outermost object first.
  std::vector<std::set<std::string>> keys;
  const auto on_event = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) {
      throw ConfigError(source, "",
                        "nested more than " + std::to_string(kMaxDepth) + " levels deep");
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw ConfigError(source, "",
                        "the key " + Shown(value) + " is given twice; keep one of them");
    }
    return true;
  };
  try {
    return json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), on_event,
                       /*allow_exceptions=*/true, comments == JsonComments::kAccept);
  } catch (const json::exception& error) {
    std::string reason = error.what();
    if (const size_t end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    // The parser's message quotes the text, which may have any length and content, so the message
    // is cut and sanitized.
    throw ConfigError(source, "",
                      "not valid JSON: " + SanitizeForTerminal(reason.substr(0, kMaxReasonBytes)));
  }
}

std::map<std::string, double> NumbersOf(const std::string& text, const std::string& source) {
  std::map<std::string, double> numbers;
  const nlohmann::json object = ParseJson(text, source);
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) numbers[name] = value.get<double>();
  }
  return numbers;
}

std::optional<std::string> DidYouMean(std::string_view word, const std::set<std::string>& known) {
  constexpr size_t kTellingPrefix = 5;
  for (const std::string& candidate : known) {
    if (word.size() >= kTellingPrefix && candidate.starts_with(word)) return candidate;
  }
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  if (word.size() > 100) return std::nullopt;
  for (const std::string& candidate : known) {
    const size_t distance = Distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
}

JsonObject::JsonObject(const json& json, std::string source, std::string path)
    : json_(json), source_(std::move(source)), path_(std::move(path)) {
  if (json_.is_object()) return;
  throw ConfigError(source_, path_,
                    (path_.empty() ? "the text" : ShownPlace(path_)) + " is " + Shown(json_) +
                        ", not an object with keys");
}

const json* JsonObject::Find(const char* key) {
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::Note(const char* key, const std::string& value, const json& schema) const {
  KeyRecord::Current()->Note(PlaceOf(key), value, "", schema.is_null() ? "" : schema.dump());
}

std::string JsonObject::PlaceOf(const std::string& key) const {
  return path_.empty() || key.empty() ? path_ + key : path_ + "." + key;
}

void JsonObject::Fail(const std::string& key, const std::string& problem) const {
  const std::string place = PlaceOf(key);
  throw ConfigError(source_, place, ShownPlace(place) + " " + SanitizeForTerminal(problem));
}

void JsonObject::FailWhole(const std::string& problem) const {
  throw ConfigError(source_, path_, (path_.empty() ? "" : ShownPlace(path_) + ": ") + problem);
}

void JsonObject::FailType(const std::string& key, const json& value,
                          const std::string& wanted) const {
  Fail(key, "is " + Shown(value) + ", " + wanted);
}

std::optional<int64_t> JsonObject::Int(const char* key, int64_t min, int64_t max) {
  if (IsRecorded())
    Note(key, WholeNumberText(min, max), BoundedSchema<int64_t>("integer", min, max));
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> whole = AsWhole(*value);
  if (!whole && !value->is_number_integer()) FailType(key, *value, "not a whole number");
  if (!whole || *whole < min || *whole > max) {
    Fail(key,
         "is " + Shown(*value) + "; it must be at least " + std::to_string(min) +
             (max == std::numeric_limits<int64_t>::max() ? ""
                                                         : " and at most " + std::to_string(max)));
  }
  return whole;
}

std::optional<double> JsonObject::Number(const char* key, double min, double max) {
  if (IsRecorded()) Note(key, NumberText(min, max), BoundedSchema<double>("number", min, max));
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) FailType(key, *value, "not a number");
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    Fail(key,
         "is " + Shown(*value) + "; it must be at least " + NumberText(min) +
             (max == std::numeric_limits<double>::max() ? "" : " and at most " + NumberText(max)));
  }
  return number;
}

std::optional<std::vector<double>> JsonObject::Numbers(const char* key, size_t count, double min,
                                                       double max) {
  if (IsRecorded())
    Note(key, "list of " + std::to_string(count) + ", each a " + NumberText(min, max),
         json{{"type", "array"},
              {"items", BoundedSchema<double>("number", min, max)},
              {"minItems", count},
              {"maxItems", count}});
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const auto fits = [&](const json& item) {
    return item.is_number() && item.get<double>() >= min && item.get<double>() <= max;
  };
  if (!value->is_array() || value->size() != count ||
      !std::all_of(value->begin(), value->end(), fits)) {
    Fail(key, "is " + Shown(*value) + "; it must be a list of " + std::to_string(count) +
                  " numbers from " + NumberText(min) + " to " + NumberText(max));
  }
  return value->get<std::vector<double>>();
}

std::optional<bool> JsonObject::Bool(const char* key) {
  if (IsRecorded()) Note(key, "true or false", json{{"type", "boolean"}});
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) FailType(key, *value, "neither true nor false");
  return value->get<bool>();
}

std::optional<std::string> JsonObject::String(const char* key) {
  if (IsRecorded()) Note(key, "text", json{{"type", "string"}});
  return ReadString(key);
}

std::optional<std::string> JsonObject::ReadString(const char* key) {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) FailType(key, *value, "not a text");
  return value->get<std::string>();
}

std::optional<std::string> JsonObject::StringOrInt(const char* key) {
  if (IsRecorded()) Note(key, "text or whole number", json{{"type", {"string", "integer"}}});
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) return value->dump();
  return ReadString(key);
}

bool JsonObject::Has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

JsonType JsonObject::TypeOf(const char* key) const {
  return json_.contains(key) ? json_[key].type() : JsonType::null;
}

std::optional<std::string> JsonObject::Word(const char* key, const std::set<std::string>& words,
                                            WordCase words_case) {
  const bool any_case = words_case == WordCase::kAny;
  if (IsRecorded()) {
    Note(key, ChoiceText(words) + (any_case ? ", in any case" : ""),
         any_case ? json{{"type", "string"}} : json{{"enum", words}});
  }
  const std::optional<std::string> given = ReadString(key);
  if (!given) return std::nullopt;
  std::string word = *given;
  if (any_case) {
    std::ranges::transform(word, word.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    });
  }
  if (words.contains(word)) return word;
  const std::optional<std::string> meant = WhatIsMeant(*given, words);
  Fail(key, "is \"" + *given + "\"; " +
                (meant ? "did you mean \"" + *meant + "\"? Known: " : "known: ") + Listed(words));
}

std::optional<JsonObject> JsonObject::Object(const char* key, const char* meaning) {
  if (IsRecorded()) Note(key, "", json());
  ExplainLastKey(meaning);
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  return JsonObject(*value, source_, PlaceOf(key));
}

std::string JsonObject::ObjectText(const char* key) {
  if (IsRecorded()) Note(key, "object", json{{"type", "object"}});
  const json* value = Find(key);
  if (value == nullptr) return "{}";
  JsonObject(*value, source_, PlaceOf(key));  // throws if the value is not an object
  return value->dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

JsonObject JsonObject::ObjectOrEmpty(const char* key, const char* meaning) {
  static const json kNoKeys = json::object();
  const std::optional<JsonObject> object = Object(key, meaning);
  return object ? *object : JsonObject(kNoKeys, source_, PlaceOf(key));
}

std::vector<JsonObject> JsonObject::Objects(const char* key) {
  if (IsRecorded()) Note(key, "list of objects", json{{"type", "array"}});
  std::vector<JsonObject> objects;
  const json* value = Find(key);
  if (value == nullptr) return objects;
  if (!value->is_array() || value->empty()) {
    Fail(key, "is " + Shown(*value) + "; it must be a list of objects");
  }
  for (size_t i = 0; i < value->size(); ++i) {
    objects.emplace_back((*value)[i], source_, PlaceOf(key) + "[" + std::to_string(i) + "]");
  }
  return objects;
}

std::vector<std::string> JsonObject::Strings(const char* key, JsonLists lists) {
  if (IsRecorded())
    Note(key, "list of texts", json{{"type", "array"}, {"items", {{"type", "string"}}}});
  const json* value = Find(key);
  if (value == nullptr) return {};
  if (!value->is_array() || (value->empty() && lists == JsonLists::kNotEmpty) ||
      !std::all_of(value->begin(), value->end(),
                   [](const json& item) { return item.is_string(); })) {
    Fail(key, "is " + Shown(*value) + "; it must be a list of texts");
  }
  return value->get<std::vector<std::string>>();
}

void JsonObject::RefuseUnlessOff(const std::set<std::string>& keys, const std::string& why) {
  const auto is_off = [](const json& value) {
    if (value.is_object()) return value.empty() || value.value("enabled", json(true)) == false;
    return value.is_null() || value == false;
  };
  for (const std::string& key : keys) {
    known_.insert(key);
    if (KeyRecord* const record = KeyRecord::Current())
      record->Note(PlaceOf(key), "off: null, false, {}", why, "");
    const auto found = json_.find(key);
    if (found != json_.end() && !is_off(*found)) Fail(key, why);
  }
}

void JsonObject::RefuseUnlessStandard(const char* key, const json& standard,
                                      const std::string& why) {
  if (KeyRecord* const record = KeyRecord::Current())
    record->Note(PlaceOf(key), standard.dump(), why, "");
  const json* value = Find(key);
  if (value == nullptr || *value == standard) return;
  if (!standard.is_object()) Fail(key, "is " + Shown(*value) + ", but " + why);
  JsonObject object(*value, source_, PlaceOf(key));
  const bool off =
      standard.value("enabled", json()) == false && value->value("enabled", json(false)) == false;
  for (const auto& [inner, inner_standard] : standard.items()) {
    if (off)
      object.known_.insert(inner);
    else
      object.RefuseUnlessStandard(inner.c_str(), inner_standard, why);
  }
  object.RefuseUnknown();
}

void JsonObject::RefuseUnknown() const {
  for (const auto& [key, value] : json_.items()) {
    if (known_.contains(key)) continue;
    const std::optional<std::string> meant = NameHere(key, known_);
    if (const std::string_view advice = AdviceInstead(key); !meant && !advice.empty())
      Fail(key, std::string(advice));
    const std::optional<std::string> near = meant ? meant : DidYouMean(key, known_);
    Fail(key, near ? "is not a known key; did you mean \"" + *near + "\"?"
                   : "is not a known key; known here: " + Listed(known_));
  }
}

}  // namespace dslaunch
