#include "hostfiles/host_filter.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/suggest.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxTokenBytes = 60;
constexpr int kAmbiguous = -1;

// An element NAME:SLOT,SLOT... of a filter, as the user typed it.
struct NodeSpec {
  std::string_view token;
  std::string_view name;  // name of the node, without the brackets of an IPv6 address
  std::string_view slots;
  bool has_slots = false;
};

std::string_view WithoutBrackets(std::string_view name) {
  return name.starts_with('[') && name.ends_with(']') ? name.substr(1, name.size() - 2) : name;
}

std::string_view WithoutBlanks(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
  return word.substr(0, word.find_last_not_of(' ') + 1);
}

class Filter {
 public:
  Filter(const std::vector<Host>& hosts, FilterKind kind, std::string_view source)
      : hosts_(hosts), kind_(kind), source_(source), named_(hosts.size()), slots_(hosts.size()) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      const int index = static_cast<int>(i);
      const auto [at, is_new] = by_host_.emplace(hosts[i].host, index);
      if (!is_new) at->second = kAmbiguous;
      by_name_.emplace(hosts[i].name, index);
      most_ats_ = std::max(most_ats_, std::ranges::count(hosts[i].name, '@'));
    }
  }

  Result<std::vector<Host>> Apply(std::string_view filter) {
    while (!filter.empty()) {
      DSL_TRY_ASSIGN(const NodeSpec spec, TakeNode(filter));
      DSL_TRY(Add(spec));
    }
    std::vector<Host> chosen;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (std::optional<Host> host = Choose(i)) chosen.push_back(*std::move(host));
    }
    if (chosen.empty()) {
      return Error{ExitCode::kUsage, Option() + " leaves no slot of " + std::string(source_) +
                                         "; name fewer nodes or slots"};
    }
    return chosen;
  }

 private:
  std::string Option() const { return kind_ == FilterKind::kInclude ? "--include" : "--exclude"; }

  Error Bad(std::string_view token, const std::string& what_and_fix) const {
    std::string quoted = SanitizeForTerminal(token.substr(0, kMaxTokenBytes));
    if (token.size() > kMaxTokenBytes) quoted += "...";
    return {ExitCode::kUsage, Option() + ": '" + quoted + "': " + what_and_fix};
  }

  bool IsKnown(std::string_view name) const {
    return by_name_.contains(name) || by_host_.contains(WithoutBrackets(name));
  }

  // Returns the token as a known node with or without slots; nullopt if no such node is known. A
  // node's name may contain a colon.
  std::optional<NodeSpec> Resolve(std::string_view token) const {
    if (IsKnown(token)) return NodeSpec{token, token, {}, false};
    const size_t colon = token.rfind(':');
    if (colon == std::string_view::npos || !IsKnown(token.substr(0, colon))) return std::nullopt;
    return NodeSpec{token, token.substr(0, colon), token.substr(colon + 1), true};
  }

  // Removes the first node from `rest` and returns it. The node's name may contain '@', as in
  // hostfiles.
  Result<NodeSpec> TakeNode(std::string_view& rest) const {
    const size_t first_at = std::min(rest.find('@'), rest.size());
    std::optional<NodeSpec> spec;
    size_t end = first_at;
    for (std::ptrdiff_t ats = 0;; ++ats) {
      spec = Resolve(rest.substr(0, end));
      if (spec || ats == most_ats_ || end == rest.size()) break;
      end = std::min(rest.find('@', end + 1), rest.size());
    }
    if (!spec) end = first_at;
    const std::string_view token = rest.substr(0, end);
    const bool is_last = end == rest.size();
    rest.remove_prefix(is_last ? end : end + 1);
    if (token.empty() || (!is_last && rest.empty()))
      return Bad("@", "no node name next to it; write NAME@NAME:SLOT,SLOT");
    if (spec) return *spec;
    const size_t colon = token.find(':');
    if (colon == std::string_view::npos) return NodeSpec{token, token, {}, false};
    return NodeSpec{token, token.substr(0, colon), token.substr(colon + 1), true};
  }

  Result<int> Find(const NodeSpec& spec) const {
    if (const auto found = by_name_.find(spec.name); found != by_name_.end()) return found->second;
    const std::string_view bare = WithoutBrackets(spec.name);
    const auto found = by_host_.find(bare);
    if (found != by_host_.end() && found->second != kAmbiguous) return found->second;
    std::vector<std::string> names;
    for (const Host& host : hosts_) {
      if (found == by_host_.end() || host.host == bare) names.push_back(host.name);
    }
    if (found != by_host_.end()) {
      return Bad(spec.token, "may be " + NameList(names, " or ") + "; write the intended one");
    }
    const std::string near = Nearest(spec.name, names);
    return Bad(spec.token, "no such node in " + std::string(source_) +
                               (near.empty() ? "; it has " + NameList(names, ", ")
                                             : ", did you mean '" + near + "'?"));
  }

  Result<void> Add(const NodeSpec& spec) {
    DSL_TRY_ASSIGN(const int index, Find(spec));
    const auto i = static_cast<size_t>(index);
    named_[i] = true;
    if (!spec.has_slots) return {};
    std::string_view rest = spec.slots;
    while (true) {
      const std::string_view word = rest.substr(0, rest.find(','));
      DSL_TRY_ASSIGN(const int slot, ReadSlot(spec, WithoutBlanks(word), hosts_[i]));
      slots_[i].push_back(slot);
      if (word.size() == rest.size()) return {};
      rest.remove_prefix(word.size() + 1);
    }
  }

  Result<int> ReadSlot(const NodeSpec& spec, std::string_view word, const Host& host) const {
    int slot = -1;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), slot);
    const bool is_number = status == std::errc() && end == word.data() + word.size() && slot >= 0;
    const std::string has =
        host.slots == 1 ? "slot 0 only" : "slots 0 to " + std::to_string(host.slots - 1);
    if (is_number && slot < host.slots) return slot;
    if (is_number || status == std::errc::result_out_of_range) {
      return Bad(spec.token,
                 "no slot " + Truncate(word, kMaxTokenBytes) + ": " + host.name + " has " + has);
    }
    if (word.find('-') != std::string_view::npos && word.front() != '-') {
      return Bad(spec.token, "ranges are not supported; write each slot, as in " +
                                 std::string(spec.name) + ":0,1,2");
    }
    return Bad(spec.token,
               "a slot is a number (" + host.name + " has " + has + "); write NAME:SLOT,SLOT");
  }

  std::optional<Host> Choose(size_t i) {
    const bool include = kind_ == FilterKind::kInclude;
    if (!named_[i]) return include ? std::nullopt : std::optional<Host>(hosts_[i]);
    std::vector<int>& given = slots_[i];
    std::sort(given.begin(), given.end());
    given.erase(std::unique(given.begin(), given.end()), given.end());
    Host host = hosts_[i];
    if (given.empty()) return include ? std::optional<Host>(std::move(host)) : std::nullopt;
    std::vector<int> taken = given;
    if (!include) {
      taken.clear();
      for (int slot = 0; slot < host.slots; ++slot) {
        if (!std::ranges::binary_search(given, slot)) taken.push_back(slot);
      }
    }
    if (taken.empty()) return std::nullopt;
    host.slots = static_cast<int>(taken.size());
    host.devices = std::move(taken);
    return host;
  }

  const std::vector<Host>& hosts_;
  const FilterKind kind_;
  const std::string_view source_;
  std::unordered_map<std::string_view, int> by_name_;
  std::unordered_map<std::string_view, int> by_host_;
  std::ptrdiff_t most_ats_ = 0;  // largest number of '@' in the name of a node
  // Whether the filter names a host, and the slots that it chooses, by index of the host.
  std::vector<bool> named_;
  std::vector<std::vector<int>> slots_;  // chosen slots of each host; empty for all slots
};

}  // namespace

Result<std::vector<Host>> FilterHosts(const std::vector<Host>& hosts, FilterKind kind,
                                      std::string_view filter, std::string_view source) {
  if (filter.empty()) return hosts;
  return Filter(hosts, kind, source).Apply(filter);
}

}  // namespace dslaunch
