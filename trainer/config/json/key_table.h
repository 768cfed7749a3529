// Describes the keys of a section as a table. A row has everything about a key: its name, the
// member that holds its value, the values that it may have, and its meaning. The reader,
// descriptions of a configuration (dump_state, the comparison of ranks), docs/reference, `dslaunch
// recipe explain` and the JSON Schema are derived from the table.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainer/config/json/json_object.h"
#include "trainer/config/json/key_record.h"

namespace dslaunch {

template <class Settings>
struct KeyRow {
  const char* key;
  // Reads the key into the settings, which do not change if the key is absent. Throws ConfigError.
  std::function<void(JsonObject& object, const char* key, Settings& settings)> read;
  // Returns the value as JSON, or null if there is no value. If the function is empty, the value
  // has no effect and is not described.
  std::function<nlohmann::ordered_json(const Settings& settings)> show;
  // Description of the key. "; default X", with the value in Settings(), is added unless the text
  // contains "default", "required" or "no effect".
  std::string meaning;
  // True if all ranks must have the same value, because they would otherwise wait for each other or
  // train different models.
  bool same_on_ranks = false;
};

template <class Settings>
using KeyTable = std::vector<KeyRow<Settings>>;

struct IntRange {
  int64_t min;
  int64_t max = std::numeric_limits<int64_t>::max();
};

struct NumberRange {
  double min;
  double max = std::numeric_limits<double>::max();
};

// Returns the value of a member as JSON.
template <class T>
nlohmann::ordered_json ValueJson(const T& value) {
  return value;
}
template <class T>
nlohmann::ordered_json ValueJson(const std::optional<T>& value) {
  return value ? ValueJson(*value) : nlohmann::ordered_json();
}

// Returns a row whose member is set to the optional value that `get(object, key)` returns.
template <class Settings, class T, class Get>
KeyRow<Settings> MemberKey(const char* key, T Settings::*member, Get get, std::string meaning) {
  return {key,
          [member, get](JsonObject& object, const char* name, Settings& settings) {
            if (auto value = get(object, name)) settings.*member = static_cast<T>(*value);
          },
          [member](const Settings& settings) { return ValueJson(settings.*member); },
          std::move(meaning)};
}

template <class Settings, class T>
KeyRow<Settings> IntKey(const char* key, T Settings::*member, IntRange range, std::string meaning) {
  return MemberKey(
      key, member,
      [range](JsonObject& object, const char* name) {
        return object.Int(name, range.min, range.max);
      },
      std::move(meaning));
}

template <class Settings, class T>
KeyRow<Settings> NumberKey(const char* key, T Settings::*member, NumberRange range,
                           std::string meaning) {
  return MemberKey(
      key, member,
      [range](JsonObject& object, const char* name) {
        return object.Number(name, range.min, range.max);
      },
      std::move(meaning));
}

template <class Settings, class T>
KeyRow<Settings> BoolKey(const char* key, T Settings::*member, std::string meaning) {
  return MemberKey(
      key, member, [](JsonObject& object, const char* name) { return object.Bool(name); },
      std::move(meaning));
}

template <class Settings>
KeyRow<Settings> TextKey(const char* key, std::string Settings::*member, std::string meaning) {
  return MemberKey(
      key, member, [](JsonObject& object, const char* name) { return object.String(name); },
      std::move(meaning));
}

template <class Settings>
KeyRow<Settings> TextsKey(const char* key, std::vector<std::string> Settings::*member,
                          std::string meaning) {
  return {key,
          [member](JsonObject& object, const char* name, Settings& settings) {
            settings.*member = object.Strings(name);
          },
          [member](const Settings& settings) { return settings.*member; }, std::move(meaning)};
}

// Returns a row for an object that is stored as JSON text; its keys are not checked.
template <class Settings>
KeyRow<Settings> ObjectTextKey(const char* key, std::string Settings::*member,
                               std::string meaning) {
  return {key,
          [member](JsonObject& object, const char* name, Settings& settings) {
            settings.*member = object.ObjectText(name);
          },
          [member](const Settings& settings) {
            return nlohmann::ordered_json::parse(settings.*member);
          },
          std::move(meaning)};
}

// Returns a row for a key whose value is one of `words`. The words are in the order of the
// enumeration T, from 0, and in lower case for kAny.
template <class Settings, class T>
KeyRow<Settings> WordKey(const char* key, T Settings::*member, std::vector<const char*> words,
                         std::string meaning, WordCase words_case = WordCase::kExact) {
  return {key,
          [member, words, words_case](JsonObject& object, const char* name, Settings& settings) {
            const std::set<std::string> known(words.begin(), words.end());
            const std::optional<std::string> word = object.Word(name, known, words_case);
            for (size_t i = 0; word && i < words.size(); ++i) {
              if (*word == words[i]) settings.*member = static_cast<T>(i);
            }
          },
          [member, words](const Settings& settings) {
            return words[static_cast<size_t>(settings.*member)];
          },
          std::move(meaning)};
}

inline constexpr char kNoEffect[] = "accepted, no effect";

// Returns `row` for a value that must be equal on all ranks.
template <class Settings>
KeyRow<Settings> SameOnRanks(KeyRow<Settings> row) {
  row.same_on_ranks = true;
  return row;
}

// Returns a row for a key that is accepted with any value of its type and has no effect.
template <class Settings>
KeyRow<Settings> IgnoredBool(const char* key) {
  return {key, [](JsonObject& object, const char* name, Settings&) { (void)object.Bool(name); },
          nullptr, kNoEffect};
}
template <class Settings>
KeyRow<Settings> IgnoredInt(const char* key) {
  return {key, [](JsonObject& object, const char* name, Settings&) { (void)object.Int(name, 0); },
          nullptr, kNoEffect};
}

template <class Settings>
KeyRow<Settings> IgnoredNumber(const char* key, NumberRange range) {
  return {key,
          [range](JsonObject& object, const char* name, Settings&) {
            (void)object.Number(name, range.min, range.max);
          },
          nullptr, kNoEffect};
}

// Returns `row` as a second name of its member. The key is read but not described.
template <class Settings>
KeyRow<Settings> OlderName(KeyRow<Settings> row) {
  row.show = nullptr;
  return row;
}

// Returns `row` for a required key. `why` is the message if the key is absent: "is missing; give
// ...".
template <class Settings>
KeyRow<Settings> Required(KeyRow<Settings> row, std::string why) {
  row.read = [read = std::move(row.read), why = std::move(why)](JsonObject& object, const char* key,
                                                                Settings& settings) {
    read(object, key, settings);
    if (!object.Has(key)) object.Fail(key, why);
  };
  return row;
}

// Returns the rows of a member that is a struct with its own table. The keys of that table are in
// the same section.
template <class Settings, class Inner>
KeyTable<Settings> Within(Inner Settings::*member, const KeyTable<Inner>& table) {
  KeyTable<Settings> rows;
  for (const KeyRow<Inner>& row : table) {
    rows.push_back(
        {row.key,
         [member, read = row.read](JsonObject& object, const char* key, Settings& settings) {
           read(object, key, settings.*member);
         },
         [member, show = row.show](const Settings& settings) { return show(settings.*member); },
         row.meaning});
    if (!row.show) rows.back().show = nullptr;
  }
  return rows;
}

// Joins several tables into one.
template <class Settings>
KeyTable<Settings> Joined(std::initializer_list<KeyTable<Settings>> tables) {
  KeyTable<Settings> all;
  for (const KeyTable<Settings>& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

template <class Settings>
std::set<std::string> KeysOf(const KeyTable<Settings>& table) {
  std::set<std::string> keys;
  for (const KeyRow<Settings>& row : table) keys.insert(row.key);
  return keys;
}

// Reads the keys of `table` if `apply` is true. Otherwise refuses the keys with `why`
// (RefuseUnlessOff).
template <class Settings>
void ReadKeysIf(bool apply, JsonObject& object, const KeyTable<Settings>& table, Settings& settings,
                const std::string& why) {
  if (apply) return ReadKeys(object, table, settings);
  object.RefuseUnlessOff(KeysOf(table), why);
}

// Returns `meaning` with "; default X" appended, where X is `standard`. Appends nothing if
// `standard` is null or "".
std::string MeaningWithDefault(const std::string& meaning, const nlohmann::ordered_json& standard);

// Returns the name that `object` uses for a key that has several names.
using KeyName = const char* (*)(const JsonObject& object, const char* key);

// Reads the keys of `table` into `settings`, in the order of the table. Throws ConfigError, naming
// the key.
template <class Settings>
void ReadKeys(JsonObject& object, const KeyTable<Settings>& table, Settings& settings,
              KeyName name_of = nullptr) {
  for (const KeyRow<Settings>& row : table) {
    row.read(object, name_of == nullptr ? row.key : name_of(object, row.key), settings);
    if (KeyRecord* const record = KeyRecord::Current()) {
      record->Explain(MeaningWithDefault(
          row.meaning, row.show ? row.show(Settings()) : nlohmann::ordered_json()));
    }
  }
}

// Returns settings with the values in `object`, and with defaults for keys that are absent.
template <class Settings>
Settings ReadKeys(JsonObject& object, const KeyTable<Settings>& table) {
  Settings settings;
  ReadKeys(object, table, settings);
  return settings;
}

// Returns the settings that `table` describes as JSON, in the order of the table.
template <class Settings>
nlohmann::ordered_json ShowKeys(const KeyTable<Settings>& table, const Settings& settings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const KeyRow<Settings>& row : table) {
    if (row.show) json[row.key] = row.show(settings);
  }
  return json;
}

}  // namespace dslaunch
