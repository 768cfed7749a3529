#include "hostfiles/hostfile_yaml.h"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "base/text/sanitize.h"
#include "base/text/suggest.h"
#include "hostfiles/host_words.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxExpandedBytes =
    4 * kMaxHostfileBytes;                       // limit of all values with aliases expanded
constexpr size_t kValueBytes = 16;               // size that a value counts in addition to its text
constexpr size_t kMaxDepth = 8;                  // limit of nesting; a host's env needs four levels
constexpr size_t kMaxVariableBytes = 128 << 10;  // limit of NAME=VALUE, as in Linux
constexpr char kForm[] = "write '- name: NAME' and below it 'slots: N' for each node";
const std::vector<std::string> kKeys = {"name",   "address", "port",        "user", "slots",
                                        "labels", "env",     "environment", "spare"};

struct Value;
using ValuePtr = std::shared_ptr<const Value>;  // shared by its aliases

// A value of the file, with its position.
struct Value {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;
  std::string text;                                  // kScalar: its text
  std::vector<ValuePtr> items;                       // kList: its elements
  std::vector<std::pair<ValuePtr, ValuePtr>> pairs;  // kMap: its entries; keys are scalars
  size_t bytes = 0;                                  // size with aliases expanded
  size_t height = 0;                                 // levels of lists and maps
};

// An error and its position. It is thrown through yaml-cpp's parser and caught in Parse.
struct BadYaml {
  int line;
  std::string token;
  std::string what;
};

// Builds a Value from the parser's events.
class ValueBuilder : public YAML::EventHandler {
 public:
  // Returns null for an empty document.
  ValuePtr Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Keep(New(Value::Kind::kNull, mark), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      throw BadYaml{mark.line + 1, "*", "alias to the value it is part of; write the value out"};
    if (open_.size() + found->second->height > kMaxDepth) TooDeep(mark);
    Place(found->second);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (tag != "?" && tag != "tag:yaml.org,2002:str") CheckTag(mark, tag);
    const bool is_null = tag == "?" && (text.empty() || text == "~" || text == "null");
    auto value = New(is_null ? Value::Kind::kNull : Value::Kind::kScalar, mark);
    value->text = text;
    value->bytes += text.size();
    Keep(std::move(value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Value::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Value::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Container {
    std::shared_ptr<Value> value;
    YAML::anchor_t anchor;
    ValuePtr key;  // kMap: the key of the value that follows
  };

  static std::shared_ptr<Value> New(Value::Kind kind, const YAML::Mark& mark) {
    auto value = std::make_shared<Value>();
    value->kind = kind;
    value->line = mark.line + 1;
    value->bytes = kValueBytes;
    return value;
  }

  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      throw BadYaml{mark.line + 1, tag, "tags are not supported; write a plain value"};
  }

  [[noreturn]] static void TooDeep(const YAML::Mark& mark) {
    throw BadYaml{mark.line + 1, "",
                  "nested more than " + std::to_string(kMaxDepth) + " levels deep; " + kForm};
  }

  void Open(Value::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    CheckTag(mark, tag);
    if (open_.size() == kMaxDepth) TooDeep(mark);
    open_.push_back({New(kind, mark), anchor, nullptr});
    open_.back().value->height = 1;
  }

  void Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    Keep(std::move(done.value), done.anchor);
  }

  void Keep(std::shared_ptr<Value> value, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = value;
    Place(std::move(value));
  }

  void Place(ValuePtr value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Container& parent = open_.back();
    parent.value->bytes += value->bytes;
    parent.value->height = std::max(parent.value->height, value->height + 1);
    if (parent.value->bytes > kMaxExpandedBytes)
      throw BadYaml{value->line, "", "too large (aliases are expanded); write fewer aliases"};
    if (parent.value->kind == Value::Kind::kList) {
      parent.value->items.push_back(std::move(value));
    } else if (parent.key) {
      parent.value->pairs.emplace_back(std::exchange(parent.key, nullptr), std::move(value));
    } else if (value->kind == Value::Kind::kScalar) {
      parent.key = std::move(value);
    } else {
      throw BadYaml{value->line, value->text, "a key must be a plain word"};
    }
  }

  ValuePtr root_;
  std::vector<Container> open_;
  std::map<YAML::anchor_t, ValuePtr> anchors_;
};

// Returns the text from a mark to the end of its line.
std::string TokenAt(std::string_view text, const YAML::Mark& mark) {
  if (mark.is_null() || static_cast<size_t>(mark.pos) >= text.size()) return "";
  text.remove_prefix(static_cast<size_t>(mark.pos));
  return std::string(text.substr(0, text.find_first_of("\r\n")));
}

// Catches yaml-cpp's exceptions.
Result<ValuePtr> Parse(std::string_view text, const std::string& path) {
  ValueBuilder builder;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return ValuePtr();
    ValueBuilder second;
    if (parser.HandleNextDocument(second))
      return Error{ExitCode::kBadInput, path + ": holds more than one document; keep one"};
    return builder.Take();
  } catch (const BadYaml& bad) {
    return Place{path, bad.line}.Bad(bad.token, bad.what);
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return Place{path, line}.Bad(TokenAt(text, error.mark),
                                 "not valid YAML: " + Truncate(error.msg) + "; " + kForm);
  }
}

std::string KeyList() {
  std::string list;
  for (const std::string& key : kKeys) list += (list.empty() ? "" : ", ") + key;
  return list;
}

// Reads one entry of the list.
class HostReader {
 public:
  explicit HostReader(const std::string& path) : path_(path) {}

  Result<Host> Read(const Value& entry) {
    const Place place{path_, entry.line};
    if (entry.kind != Value::Kind::kMap) {
      return place.Bad(entry.kind == Value::Kind::kScalar ? entry.text : "-",
                       std::string("a node must be a map; ") + kForm);
    }
    host_.line = entry.line;
    std::unordered_set<std::string> seen;
    for (const auto& [key, value] : entry.pairs) {
      const std::string& name = key->text == "environment" ? "env" : key->text;
      if (!seen.insert(name).second)
        return Place{path_, key->line}.Bad(key->text, "given twice; keep one");
      DSL_TRY(ReadKey(*key, *value));
    }
    if (host_.name.empty() && host_.host.empty())
      return place.Bad("-", "a node without a name; add 'name: NAME' or 'address: ADDRESS'");
    if (host_.host.empty()) {
      DSL_TRY(CheckAddress(host_.name, place));
      host_.host = host_.name;
    }
    if (host_.name.empty()) host_.name = host_.host;
    if (host_.slots == 0)
      return place.Bad(host_.name, "no slots given; add 'slots: N', N ranks (GPUs)");
    return std::move(host_);
  }

 private:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  Result<void> ReadKey(const Value& key, const Value& value) {
    const std::string& name = key.text;
    const Place place{path_, key.line};
    if (std::ranges::find(kKeys, name) == kKeys.end()) {
      const std::string near = Nearest(name, kKeys);
      return place.Bad(name, near.empty() ? "not a key of a node; these are: " + KeyList()
                                          : "unknown key, did you mean '" + near + "'?");
    }
    if (name == "labels") return ReadPairs(key, value, host_.labels);
    if (name == "env" || name == "environment") return ReadVariables(key, value);
    if (value.kind != Value::Kind::kScalar)
      return place.Bad(name, "must have one value, as in '" + name + ": " + Example(name) + "'");
    const std::string& text = value.text;
    const std::string word = name + ": " + text;
    if (text.size() > kMaxHostLineBytes)
      return place.Bad(word, "longer than " + std::to_string(kMaxHostLineBytes) + " bytes");
    if (name == "port") {
      DSL_TRY_ASSIGN(host_.port, ParsePort(text, word, place));
    } else if (name == "slots") {
      DSL_TRY_ASSIGN(host_.slots, ParseSlotCount(text, word, place));
    } else if (name == "spare") {
      if (text != "true" && text != "false") {
        return place.Bad(word,
                         "spare must be true or false; true for a node that gets ranks only in "
                         "place of a lost one");
      }
      host_.spare = text == "true";
    } else if (name == "user") {
      DSL_TRY(CheckUser(text, place));
      host_.user = text;
    } else {
      DSL_TRY(CheckAddress(text, place));
      (name == "name" ? host_.name : host_.host) = text;
    }
    return {};
  }

  static std::string Example(const std::string& name) {
    return name == "spare" ? "true" : name == "slots" ? "8" : name == "port" ? "22" : "node1";
  }

  Result<void> ReadPairs(const Value& key, const Value& value, Pairs& pairs) {
    const Place place{path_, key.line};
    if (value.kind != Value::Kind::kMap)
      return place.Bad(key.text, "must be a map, as in '" + key.text + ": {NAME: VALUE}'");
    std::unordered_set<std::string> seen;
    for (const auto& [name, text] : value.pairs) {
      const Place at{path_, name->line};
      if (text->kind != Value::Kind::kScalar)
        return at.Bad(name->text, "must have one value; '' is an empty one");
      if (!seen.insert(name->text).second) return at.Bad(name->text, "given twice; keep one");
      pairs.emplace_back(name->text, text->text);
    }
    return {};
  }

  Result<void> ReadVariables(const Value& key, const Value& value) {
    DSL_TRY(ReadPairs(key, value, host_.env));
    for (size_t i = 0; i < host_.env.size(); ++i) {
      const auto& [name, text] = host_.env[i];
      const Place place{path_, value.pairs[i].first->line};
      if (name.empty() || name.find('=') != std::string::npos ||
          name.find('\0') != std::string::npos) {
        return place.Bad(name, "not the name of a variable; write NAME: VALUE");
      }
      if (text.find('\0') != std::string::npos)
        return place.Bad(name, "no variable can hold a zero byte; remove it");
      if (name.size() + text.size() + 2 > kMaxVariableBytes)
        return place.Bad(name, "longer than a variable can be, 128 KiB; put it into a file");
    }
    return {};
  }

  const std::string& path_;
  Host host_;
};

// Returns the list of hosts, or null if the file is empty.
Result<const Value*> FindList(const Value& root, const std::string& path) {
  const Place place{path, root.line};
  if (root.kind == Value::Kind::kNull) return nullptr;
  if (root.kind == Value::Kind::kList) return &root;
  if (root.kind == Value::Kind::kScalar) {
    return place.Bad(root.text, std::string("not a list of nodes; ") + kForm +
                                    ", or give a file of lines 'NAME slots=N' another name than "
                                    ".yaml");
  }
  const Value* list = nullptr;
  for (const auto& [key, value] : root.pairs) {
    const Place at{path, key->line};
    if (key->text != "hosts")
      return at.Bad(key->text, std::string("the only key here is 'hosts', a list; ") + kForm);
    if (list != nullptr) return at.Bad(key->text, "given twice; keep one");
    if (value->kind != Value::Kind::kList && value->kind != Value::Kind::kNull)
      return at.Bad(key->text, std::string("must be a list; ") + kForm);
    list = value.get();
  }
  return list;
}

}  // namespace

bool IsYamlHostfile(std::string_view text, const std::string& path) {
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.empty() || line.front() == '#') continue;
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    return word == "hosts:" || word == "-" || word == "---" || line.front() == '{' ||
           line.front() == '%';
  }
  return false;
}

Result<std::vector<Host>> ParseYamlHostfile(std::string_view text, const std::string& path) {
  DSL_TRY_ASSIGN(const ValuePtr root, Parse(text, path));
  HostList hosts;
  const Value* list = nullptr;
  if (root) {
    DSL_TRY_ASSIGN(list, FindList(*root, path));
  }
  if (list != nullptr) {
    for (const ValuePtr& entry : list->items) {
      DSL_TRY_ASSIGN(Host host, HostReader(path).Read(*entry));
      const Place place{path, host.line};
      DSL_TRY(hosts.Add(std::move(host), place));
    }
  }
  return hosts.Take(path, kForm);
}

}  // namespace dslaunch
