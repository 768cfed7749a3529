#include "cli/plan/yaml_document.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/os/ownership.h"
#include "base/text/sanitize.h"
#include "base/yaml/yaml_value.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Limit of the bytes of all values after the expansion of aliases.
constexpr size_t kMaxExpandedBytes = 4u << 20;
constexpr size_t kMaxDepth = 64;

// An error at the position of `value`. ParseYaml catches it.
struct BadYaml {
  const YamlValue& value;
  std::string what;
};

bool Contains(std::initializer_list<std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Returns whether `text` has the form of a decimal integer or float in YAML 1.2. Numbers in JSON
// have this form too.
bool LooksLikeNumber(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const size_t digits = static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }));
  if (digits == 0 || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.')) return false;
  double ignored;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), ignored);
  return status != std::errc::invalid_argument && end == text.data() + text.size();
}

Json ReadNumber(std::string_view text, const YamlValue& value) {
  const bool plus = text[0] == '+';
  if (plus) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  if (text.find_first_of(".eE") == std::string_view::npos) {
    int64_t whole = 0;
    if (auto [stop, status] = std::from_chars(text.data(), end, whole);
        status == std::errc() && stop == end) {
      return whole;
    }
    uint64_t large = 0;
    if (auto [stop, status] = std::from_chars(text.data(), end, large);
        status == std::errc() && stop == end) {
      return large;
    }
    throw BadYaml{value, "whole number out of range: " + Truncate(text)};
  }
  double number = 0;
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || stop != end || !std::isfinite(number)) {
    throw BadYaml{value, "number out of range: " + Truncate(text)};
  }
  return number;
}

// Converts a scalar by YAML 1.2's core schema, with decimal numbers only: `1e-3` is a number, `no`
// is a string.
Json PlainScalar(const YamlValue& value) {
  const std::string& text = value.text;
  if (Contains({"", "~", "null", "Null", "NULL"}, text)) return nullptr;
  if (Contains({"true", "True", "TRUE"}, text)) return true;
  if (Contains({"false", "False", "FALSE"}, text)) return false;
  if (Contains({".inf", "-.inf", "+.inf", ".nan", ".Inf", "-.Inf", "+.Inf", ".NaN", ".NAN"},
               text)) {
    throw BadYaml{value, "'" + text + "' is not a finite number"};
  }
  if (LooksLikeNumber(text)) return ReadNumber(text, value);
  return text;
}

std::string LineAndColumn(int line, int column) {
  return std::to_string(line) + ":" + std::to_string(column);
}

// Converts a document to JSON, and collects the places of its keys.
class JsonMaker {
 public:
  JsonMaker(Scalars scalars, KeyPlaces* places) : scalars_(scalars), places_(places) {}

  // Converts `value`, whose path is `path` ("" for the document). `placed` is whether the keys get
  // places; keys in a value that an alias refers to get none.
  Json Make(const YamlValue& value, const std::string& path, bool placed) {
    placed = placed && seen_.insert(&value).second;
    switch (value.kind) {
      case YamlValue::Kind::kNull:
        return nullptr;
      case YamlValue::Kind::kScalar:
        return !value.plain || (scalars_ == Scalars::kText && !value.text.empty())
                   ? Json(value.text)
                   : PlainScalar(value);
      case YamlValue::Kind::kList: {
        Json list = Json::array();
        for (const YamlPtr& item : value.items) {
          list.push_back(Make(*item, path + "[" + std::to_string(list.size()) + "]", placed));
        }
        return list;
      }
      case YamlValue::Kind::kMap:
        return MakeMap(value, path, placed);
    }
    return nullptr;
  }

 private:
  Json MakeMap(const YamlValue& value, const std::string& path, bool placed) {
    Json map = Json::object();
    for (const auto& [key, inner] : value.pairs) {
      if (key->plain && key->text == "<<")
        throw BadYaml{*key, "merge keys ('<<') are not supported; write the keys out"};
      if (map.contains(key->text))
        throw BadYaml{*key, "key " + Quoted(key->text) + " is given twice; keep one"};
      const std::string inner_path = path + (path.empty() ? "" : ".") + key->text;
      const bool short_enough = inner_path.size() <= kMaxPlacedPathBytes;
      if (placed && short_enough && places_ != nullptr) {
        (*places_)[inner_path] = LineAndColumn(key->line, key->column);
      }
      map[key->text] = Make(*inner, inner_path, placed && short_enough);
    }
    return map;
  }

  const Scalars scalars_;
  KeyPlaces* const places_;
  std::unordered_set<const YamlValue*> seen_;
};

Error CannotRead(const fs::path& path, const std::string& why) {
  return {ExitCode::kBadInput, Truncate(path.string()) + ": cannot be read: " + why};
}

}  // namespace

Result<Json> ParseYaml(std::string_view text, const std::string& source, Scalars scalars,
                       KeyPlaces* places) {
  YamlProblem problem;
  const YamlPtr root = ParseYamlValue(text, {kMaxDepth, kMaxExpandedBytes}, &problem);
  if (!problem.what.empty()) {
    const std::string place =
        problem.line == 0 ? source : source + ":" + LineAndColumn(problem.line, problem.column);
    if (problem.syntax)
      return Error{ExitCode::kBadInput, place + ": not valid YAML: " + Truncate(problem.what)};
    const std::string token = problem.token.empty() ? "" : Quoted(problem.token) + ": ";
    return Error{ExitCode::kBadInput, place + ": " + token + problem.what};
  }
  if (root == nullptr) return Json(nullptr);
  try {
    return JsonMaker(scalars, places).Make(*root, "", /*placed=*/true);
  } catch (const BadYaml& bad) {
    return Error{ExitCode::kBadInput,
                 source + ":" + LineAndColumn(bad.value.line, bad.value.column) + ": " + bad.what};
  }
}

Result<std::string> ReadTextFile(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return CannotRead(path, "it is a folder; name the file in it");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return CannotRead(path, std::strerror(errno));
  std::string text(kMaxTextFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.bad()) return CannotRead(path, std::strerror(errno));
  if (text.size() > kMaxTextFileBytes) return CannotRead(path, "it is larger than 1 MiB");
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

Result<std::string> ReadUnnamedTextFile(const fs::path& path) {
  const Result<UniqueFd> file = OpenTrustedFile(path.string(), ::geteuid());
  if (!file.ok()) {
    return Error{file.error().code, file.error().message +
                                        "; to use it all the same, name it: --run_file " +
                                        Truncate(path.string())};
  }
  return ReadAll(*file, path.string(), kMaxTextFileBytes);
}

bool BeginsJsonObject(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '{';
}

std::string WithoutComments(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '"') {
      for (++i; i < out.size() && out[i] != '"'; ++i) i += out[i] == '\\';
      continue;
    }
    const std::string_view start = std::string_view(out).substr(i, 2);
    if (start != "//" && start != "/*") continue;
    const size_t end = start == "//" ? out.find('\n', i) : out.find("*/", i + 2);
    const size_t stop =
        std::min(out.size(), start == "//" || end == std::string::npos ? end : end + 2);
    for (; i < stop; ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
    --i;
  }
  return out;
}

std::string WithoutJsonComments(std::string_view text) {
  std::string uncommented = WithoutComments(text);
  return BeginsJsonObject(uncommented) ? uncommented : std::string(text);
}

}  // namespace dslaunch
