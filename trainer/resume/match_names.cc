#include "trainer/resume/match_names.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/count.h"

namespace dslaunch {
namespace {

constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module"};

// Returns `name` without the parts that kWrappers lists, and adds the removed parts to `dropped`.
std::string WithoutWrappers(const std::string& name, std::set<std::string>& dropped) {
  std::string rest;
  for (size_t start = 0; start <= name.size();) {
    const size_t end = std::min(name.find('.', start), name.size());
    const std::string part = name.substr(start, end - start);
    if (std::ranges::find(kWrappers, part) != kWrappers.end()) {
      dropped.insert(part);
    } else {
      if (!rest.empty()) rest += '.';
      rest += part;
    }
    start = end + 1;
  }
  return rest;
}

// Returns `name` without the prefix that files of the model's family may omit.
std::string ShortName(const std::string& name, const WeightNames& names) {
  return name.starts_with(names.prefix) ? name.substr(names.prefix.size()) : name;
}

// Returns the prefix whose removal makes most names match the model's names; of several such
// prefixes, the shortest.
std::string FindPrefix(const std::vector<std::string>& model,
                       const std::map<std::string, std::string>& tensors,
                       const WeightNames& names) {
  std::set<std::string> known;
  for (const std::string& name : model) known.insert({name, ShortName(name, names)});
  std::map<std::string, size_t> counts;
  for (const auto& [name, original] : tensors) {
    for (size_t start = 0, dot = 0; dot != std::string::npos; start = dot + 1) {
      if (known.contains(name.substr(start))) ++counts[name.substr(0, start)];
      dot = name.find('.', start);
    }
  }
  std::string best;
  size_t most = 0;
  for (const auto& [prefix, count] : counts) {
    if (count < most || (count == most && prefix.size() >= best.size())) continue;
    best = prefix;
    most = count;
  }
  return best;
}

}  // namespace

MatchedNames MatchNames(const std::vector<std::string>& model,
                        const std::vector<std::string>& checkpoint,
                        const std::map<std::string, std::string>& aliases,
                        const WeightNames& names) {
  MatchedNames matched;
  std::set<std::string> dropped;
  // The names in `checkpoint`, keyed by the same names without the parts of wrappers.
  std::map<std::string, std::string> tensors;
  for (const std::string& name : checkpoint) {
    if (!tensors.emplace(WithoutWrappers(name, dropped), name).second) {
      matched.extra.push_back(name);
    }
  }
  for (const auto& [alias, name] : aliases) tensors.emplace(WithoutWrappers(alias, dropped), name);
  matched.wrappers.assign(dropped.begin(), dropped.end());
  matched.prefix = FindPrefix(model, tensors, names);

  std::set<std::string> used;
  for (const std::string& name : model) {
    auto found = tensors.find(matched.prefix + name);
    if (found == tensors.end()) found = tensors.find(matched.prefix + ShortName(name, names));
    if (found == tensors.end()) {
      matched.missing.push_back(name);
      continue;
    }
    matched.in_checkpoint[name] = found->second;
    used.insert(found->second);
  }
  for (const auto& [name, original] : tensors) {
    if (used.contains(original)) continue;
    const bool has_prefix = name.starts_with(matched.prefix);
    const std::string rest = has_prefix ? name.substr(matched.prefix.size()) : name;
    if (names.copies.contains(rest)) {
      matched.copies[original] = rest;
    } else if (std::ranges::none_of(names.ignored_endings, [&](const std::string& ending) {
                 return name.ends_with(ending);
               })) {
      matched.extra.push_back(original);
    }
  }
  std::ranges::sort(matched.missing);
  std::ranges::sort(matched.extra);
  return matched;
}

std::string DescribeDropped(const MatchedNames& matched) {
  std::vector<std::string> parts;
  if (!matched.prefix.empty()) parts.push_back("\"" + matched.prefix + "\"");
  for (const std::string& wrapper : matched.wrappers) parts.push_back("\"" + wrapper + ".\"");
  return parts.empty() ? "" : "names are read without " + NameList(parts, ", ");
}

}  // namespace dslaunch
