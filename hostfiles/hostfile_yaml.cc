#include "hostfiles/hostfile_yaml.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/text/sanitize.h"
#include "base/text/suggest.h"
#include "base/yaml/yaml_value.h"
#include "hostfiles/host_words.h"

namespace dslaunch {
namespace {

// Limit of the total size of all values after aliases are expanded.
constexpr size_t kMaxExpandedBytes = 4 * kMaxHostfileBytes;
constexpr size_t kMaxDepth = 8;  // limit of nesting, of which a host's env needs four levels
constexpr size_t kMaxVariableBytes = 128 << 10;  // maximum size of NAME=VALUE, as in Linux
constexpr char kForm[] = "write '- name: NAME' and below it 'slots: N' for each node";
const std::vector<std::string> kKeys = {"name",   "address", "port",        "user", "slots",
                                        "labels", "env",     "environment", "spare"};

using Kind = YamlValue::Kind;

Result<YamlPtr> Parse(std::string_view text, const std::string& path) {
  YamlProblem problem;
  YamlPtr root = ParseYamlValue(text, {kMaxDepth, kMaxExpandedBytes}, &problem);
  if (problem.what.empty()) return root;
  if (problem.line == 0 && !problem.syntax) {
    return Error{ExitCode::kBadInput, path + ": " + problem.what};
  }
  return Place{path, std::max(problem.line, 1)}.Bad(
      problem.token,
      (problem.syntax ? "not valid YAML: " + Truncate(problem.what) : problem.what) + "; " + kForm);
}

std::string KeyList() {
  std::string list;
  for (const std::string& key : kKeys) list += (list.empty() ? "" : ", ") + key;
  return list;
}

// Reads one host from an entry of the YAML list.
class HostReader {
 public:
  explicit HostReader(const std::string& path) : path_(path) {}

  Result<Host> Read(const YamlValue& entry) {
    const Place place{path_, entry.line};
    if (entry.kind != Kind::kMap) {
      return place.Bad(entry.kind == Kind::kScalar ? entry.text : "-",
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

  Result<void> ReadKey(const YamlValue& key, const YamlValue& value) {
    const std::string& name = key.text;
    const Place place{path_, key.line};
    if (std::ranges::find(kKeys, name) == kKeys.end()) {
      const std::string near = Nearest(name, kKeys);
      return place.Bad(name, near.empty() ? "not a key of a node; these are: " + KeyList()
                                          : "unknown key, did you mean '" + near + "'?");
    }
    if (name == "labels") return ReadPairs(key, value, host_.labels);
    if (name == "env" || name == "environment") return ReadVariables(key, value);
    if (value.kind != Kind::kScalar)
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

  Result<void> ReadPairs(const YamlValue& key, const YamlValue& value, Pairs& pairs) {
    const Place place{path_, key.line};
    if (value.kind != Kind::kMap)
      return place.Bad(key.text, "must be a map, as in '" + key.text + ": {NAME: VALUE}'");
    std::unordered_set<std::string> seen;
    for (const auto& [name, text] : value.pairs) {
      const Place at{path_, name->line};
      if (text->kind != Kind::kScalar)
        return at.Bad(name->text, "must have one value; '' is an empty one");
      if (!seen.insert(name->text).second) return at.Bad(name->text, "given twice; keep one");
      pairs.emplace_back(name->text, text->text);
    }
    return {};
  }

  Result<void> ReadVariables(const YamlValue& key, const YamlValue& value) {
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

// Returns the list of hosts; nullptr if the file is empty or the list is null.
Result<const YamlValue*> FindList(const YamlValue& root, const std::string& path) {
  const Place place{path, root.line};
  if (root.kind == Kind::kNull) return nullptr;
  if (root.kind == Kind::kList) return &root;
  if (root.kind == Kind::kScalar) {
    return place.Bad(root.text, std::string("not a list of nodes; ") + kForm +
                                    ", or give a file of lines 'NAME slots=N' another name than "
                                    ".yaml");
  }
  const YamlValue* list = nullptr;
  for (const auto& [key, value] : root.pairs) {
    const Place at{path, key->line};
    if (key->text != "hosts")
      return at.Bad(key->text, std::string("the only key here is 'hosts', a list; ") + kForm);
    if (list != nullptr) return at.Bad(key->text, "given twice; keep one");
    if (value->kind != Kind::kList && value->kind != Kind::kNull)
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
  DSL_TRY_ASSIGN(const YamlPtr root, Parse(text, path));
  HostList hosts;
  const YamlValue* list = nullptr;
  if (root) {
    DSL_TRY_ASSIGN(list, FindList(*root, path));
  }
  if (list != nullptr) {
    for (const YamlPtr& entry : list->items) {
      DSL_TRY_ASSIGN(Host host, HostReader(path).Read(*entry));
      const Place place{path, host.line};
      DSL_TRY(hosts.Add(std::move(host), place));
    }
  }
  return hosts.Take(path, kForm);
}

}  // namespace dslaunch
