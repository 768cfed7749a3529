#include "base/yaml/yaml_value.h"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace dslaunch {
namespace {

constexpr size_t kValueBytes = 16;

// Builds values from the events of yaml-cpp's parser. Reports a problem by throwing YamlProblem
// through the parser.
class ValueBuilder : public YAML::EventHandler {
 public:
  explicit ValueBuilder(const YamlLimits& limits) : limits_(limits) {}

  YamlPtr Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Keep(New(YamlValue::Kind::kNull, mark), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      Refuse(mark, "*", "alias to the value it is part of; write the value out");
    if (open_.size() + found->second->height > limits_.depth) TooDeep(mark);
    Place(found->second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (tag != "tag:yaml.org,2002:str") CheckTag(mark, tag);
    auto value = New(YamlValue::Kind::kScalar, mark);
    value->text = text;
    value->plain = tag == "?";
    value->bytes += text.size();
    Keep(std::move(value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlValue::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(YamlValue::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Container {
    std::shared_ptr<YamlValue> value;
    YAML::anchor_t anchor;
    YamlPtr key;  // key in a kMap whose value has not been read yet
  };

  [[noreturn]] static void Refuse(const YAML::Mark& mark, std::string token, std::string what) {
    throw YamlProblem{mark.line + 1, mark.column + 1, std::move(token), std::move(what)};
  }

  [[noreturn]] static void Refuse(const YamlValue& value, std::string token, std::string what) {
    throw YamlProblem{value.line, value.column, std::move(token), std::move(what)};
  }

  static std::shared_ptr<YamlValue> New(YamlValue::Kind kind, const YAML::Mark& mark) {
    auto value = std::make_shared<YamlValue>();
    value->kind = kind;
    value->line = mark.line + 1;
    value->column = mark.column + 1;
    value->bytes = kValueBytes;
    return value;
  }

  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      Refuse(mark, tag, "tags are not supported; write a plain value");
  }

  [[noreturn]] void TooDeep(const YAML::Mark& mark) const {
    Refuse(mark, "", "nested more than " + std::to_string(limits_.depth) + " levels deep");
  }

  void Open(YamlValue::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    CheckTag(mark, tag);
    if (open_.size() == limits_.depth) TooDeep(mark);
    open_.push_back({New(kind, mark), anchor, nullptr});
    open_.back().value->height = 1;
  }

  void Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    Keep(std::move(done.value), done.anchor);
  }

  void Keep(std::shared_ptr<YamlValue> value, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = value;
    Place(std::move(value));
  }

  void Place(YamlPtr value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Container& parent = open_.back();
    parent.value->bytes += value->bytes;
    parent.value->height = std::max(parent.value->height, value->height + 1);
    if (parent.value->bytes > limits_.bytes)
      Refuse(*value, "", "too large (aliases are expanded); write fewer aliases");
    if (parent.value->kind == YamlValue::Kind::kList) {
      parent.value->items.push_back(std::move(value));
    } else if (parent.key) {
      parent.value->pairs.emplace_back(std::exchange(parent.key, nullptr), std::move(value));
    } else if (value->kind == YamlValue::Kind::kScalar) {
      parent.key = std::move(value);
    } else {
      Refuse(*value, value->text, "a key must be a plain word");
    }
  }

  const YamlLimits limits_;
  YamlPtr root_;
  std::vector<Container> open_;
  std::map<YAML::anchor_t, YamlPtr> anchors_;
};

// Returns the text from a position to the end of its line.
std::string TokenAt(std::string_view text, const YAML::Mark& mark) {
  if (mark.is_null() || static_cast<size_t>(mark.pos) >= text.size()) return "";
  text.remove_prefix(static_cast<size_t>(mark.pos));
  return std::string(text.substr(0, text.find_first_of("\r\n")));
}

}  // namespace

YamlPtr ParseYamlValue(std::string_view text, const YamlLimits& limits, YamlProblem* problem) {
  ValueBuilder builder(limits);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return nullptr;
    ValueBuilder second(limits);
    if (parser.HandleNextDocument(second)) {
      problem->what = "holds more than one document; keep one";
      return nullptr;
    }
    return builder.Take();
  } catch (YamlProblem& found) {
    *problem = std::move(found);
  } catch (const YAML::Exception& error) {
    const bool somewhere = !error.mark.is_null();
    *problem = {somewhere ? error.mark.line + 1 : 0, somewhere ? error.mark.column + 1 : 0,
                TokenAt(text, error.mark), error.msg, /*syntax=*/true};
  }
  return nullptr;
}

}  // namespace dslaunch
