#include "cli/plan/yaml_document.h"

#include <unistd.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "base/os/ownership.h"
#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMaxExpandedBytes = 4u << 20;  // of all values, aliases expanded
constexpr size_t kValueBytes = 16;              // what a value counts besides its text
constexpr size_t kMaxDepth = 64;

// What was wrong and where, thrown through yaml-cpp's parser and caught in ParseYaml.
struct BadYaml {
  YAML::Mark mark;
  std::string what;
};

bool Contains(std::initializer_list<std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The shape of YAML 1.2's decimal integers and floats; JSON's numbers have it too.
bool LooksLikeNumber(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const size_t digits = static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }));
  if (digits == 0 || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.')) return false;
  double ignored;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), ignored);
  return status != std::errc::invalid_argument && end == text.data() + text.size();
}

Json ReadNumber(std::string_view text, const YAML::Mark& mark) {
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
    throw BadYaml{mark, "whole number out of range: " + Truncate(text)};
  }
  double value = 0;
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end || !std::isfinite(value)) {
    throw BadYaml{mark, "number out of range: " + Truncate(text)};
  }
  return value;
}

// Types as in YAML 1.2's core schema, numbers in decimal only, so `1e-3` is a number and `no` is a
// string.
Json PlainScalar(const std::string& text, const YAML::Mark& mark) {
  if (Contains({"", "~", "null", "Null", "NULL"}, text)) return nullptr;
  if (Contains({"true", "True", "TRUE"}, text)) return true;
  if (Contains({"false", "False", "FALSE"}, text)) return false;
  if (Contains({".inf", "-.inf", "+.inf", ".nan", ".Inf", "-.Inf", "+.Inf", ".NaN", ".NAN"},
               text)) {
    throw BadYaml{mark, "'" + text + "' is not a finite number"};
  }
  if (LooksLikeNumber(text)) return ReadNumber(text, mark);
  return text;
}

std::string LineAndColumn(const YAML::Mark& mark) {
  return std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

// Builds JSON from the parser's events. Bounded in depth and size, aliases included.
class JsonBuilder : public YAML::EventHandler {
 public:
  explicit JsonBuilder(Scalars scalars) : scalars_(scalars) {}

  Json Take() { return std::move(root_); }
  KeyPlaces TakePlaces() { return std::move(places_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(nullptr, mark, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw BadYaml{mark, "alias to the value it is part of"};
    Count(found->second.bytes, mark);
    if (open_.size() + found->second.height > kMaxDepth) TooDeep(mark);
    if (!open_.empty())
      open_.back().height = std::max(open_.back().height, found->second.height + 1);
    Place(found->second.value, mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (tag == "?") {
      if (AtKey()) {
        if (value == "<<")
          throw BadYaml{mark, "merge keys ('<<') are not supported; write the keys out"};
        Add(value, mark, anchor);
      } else if (scalars_ == Scalars::kText && !value.empty()) {
        Add(value, mark, anchor);
      } else {
        Add(PlainScalar(value, mark), mark, anchor);
      }
    } else if (tag == "!" || tag == "tag:yaml.org,2002:str") {
      Add(value, mark, anchor);
    } else {
      throw BadYaml{mark, "tag " + Quoted(tag) + " is not supported; write a plain value"};
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Json::array(), mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Json::object(), mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Container {
    Json value;
    YAML::Mark mark;
    YAML::anchor_t anchor;
    std::optional<std::string> key;  // of a map, when its value is next
    size_t bytes_before = 0;         // bytes_ when it was opened
    size_t height = 1;               // nested levels, itself included
  };
  struct Anchored {
    Json value;
    size_t bytes;
    size_t height;
  };

  [[noreturn]] static void TooDeep(const YAML::Mark& mark) {
    throw BadYaml{mark, "nested more than " + std::to_string(kMaxDepth) + " levels deep"};
  }

  bool AtKey() const {
    return !open_.empty() && open_.back().value.is_object() && !open_.back().key;
  }

  void Count(size_t bytes, const YAML::Mark& mark) {
    bytes_ += bytes;
    if (bytes_ > kMaxExpandedBytes) throw BadYaml{mark, "too large (aliases are expanded)"};
  }

  void Add(Json value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    const size_t bytes =
        kValueBytes + (value.is_string() ? value.get_ref<const std::string&>().size() : 0);
    Count(bytes, mark);
    if (anchor != YAML::NullAnchor) anchors_[anchor] = {value, bytes, 0};
    Place(std::move(value), mark);
  }

  void Open(Json empty, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw BadYaml{mark, "tag " + Quoted(tag) + " is not supported; write a plain value"};
    }
    if (AtKey()) throw BadYaml{mark, "a key must be a plain word"};
    if (open_.size() == kMaxDepth) TooDeep(mark);
    const size_t bytes_before = bytes_;
    Count(kValueBytes, mark);
    open_.push_back({std::move(empty), mark, anchor, std::nullopt, bytes_before, 1});
  }

  void Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    if (!open_.empty()) open_.back().height = std::max(open_.back().height, done.height + 1);
    if (done.anchor != YAML::NullAnchor) {
      anchors_[done.anchor] = {done.value, bytes_ - done.bytes_before, done.height};
    }
    Place(std::move(done.value), done.mark);
  }

  void Place(Json value, const YAML::Mark& mark) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Container& parent = open_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else if (parent.key) {
      parent.value[*parent.key] = std::move(value);
      parent.key.reset();
    } else {
      if (!value.is_string()) throw BadYaml{mark, "a key must be a plain word"};
      parent.key = value.get<std::string>();
      if (parent.value.contains(*parent.key)) {
        throw BadYaml{mark, "key " + Quoted(*parent.key) + " is given twice; keep one"};
      }
      KeepPlace(mark);
    }
  }

  void KeepPlace(const YAML::Mark& mark) {
    std::string path;
    for (const Container& container : open_) {
      if (container.value.is_array()) {
        path += "[" + std::to_string(container.value.size()) + "]";
      } else {
        path += (path.empty() ? "" : ".") + *container.key;
      }
      if (path.size() > kMaxPlacedPathBytes) return;
    }
    places_[path] = LineAndColumn(mark);
  }

  const Scalars scalars_;
  Json root_;
  KeyPlaces places_;
  std::vector<Container> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  size_t bytes_ = 0;
};

std::string At(const std::string& source, const YAML::Mark& mark) {
  return mark.is_null() ? source : source + ":" + LineAndColumn(mark);
}

Error CannotRead(const fs::path& path, const std::string& why) {
  return {ExitCode::kBadInput, Truncate(path.string()) + ": cannot be read: " + why};
}

}  // namespace

// yaml-cpp's exceptions end here.
Result<Json> ParseYaml(std::string_view text, const std::string& source, Scalars scalars,
                       KeyPlaces* places) {
  JsonBuilder builder(scalars);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return Json(nullptr);
    JsonBuilder second(scalars);
    if (parser.HandleNextDocument(second)) {
      return Error{ExitCode::kBadInput, source + ": holds more than one document; keep one"};
    }
    if (places != nullptr) *places = builder.TakePlaces();
    return builder.Take();
  } catch (const BadYaml& bad) {
    return Error{ExitCode::kBadInput, At(source, bad.mark) + ": " + bad.what};
  } catch (const YAML::Exception& error) {
    return Error{ExitCode::kBadInput,
                 At(source, error.mark) + ": not valid YAML: " + Truncate(error.msg)};
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
