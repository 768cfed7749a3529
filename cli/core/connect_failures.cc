#include "cli/core/connect_failures.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/count.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxNames = 32;

// Returns the message without the node at its beginning. Accepts the beginnings "node 'a' (root@a
// port 22): text" and "a: text".
std::string_view Reason(const NodeFailure& failure) {
  std::string_view text = failure.message;
  const std::string quoted = "node '" + failure.node + "'";
  if (text.starts_with(quoted)) {
    text.remove_prefix(quoted.size());
    if (text.starts_with(" (")) text.remove_prefix(std::min(text.find("): "), text.size() - 1) + 1);
  } else if (text.starts_with(failure.node)) {
    text.remove_prefix(failure.node.size());
  }
  return text.starts_with(": ") ? text.substr(2) : std::string_view(failure.message);
}

// Returns whether `word` contains `name` other than as part of a longer name.
bool Names(std::string_view word, std::string_view name) {
  const auto goes_on = [word](size_t at) {
    return at < word.size() && (std::isalnum(static_cast<unsigned char>(word[at])) != 0 ||
                                word[at] == '-' || word[at] == '_');
  };
  for (size_t at = word.find(name); at != std::string_view::npos && !name.empty();
       at = word.find(name, at + 1)) {
    if ((at == 0 || !goes_on(at - 1)) && !goes_on(at + name.size())) return true;
  }
  return false;
}

bool IsOneNodesOwn(std::string_view word, const NodeFailure& failure) {
  if (Names(word, failure.node) || Names(word, failure.host) || word.starts_with("SHA256:"))
    return true;
  const bool has_digit =
      std::ranges::any_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
  // A word with a digit and three dots, or with a digit and two colons, counts as an address.
  return has_digit && (std::ranges::count(word, '.') >= 3 || std::ranges::count(word, ':') >= 2);
}

// Returns the reason with the parts that are specific to one node replaced, so that equal results
// mean the same kind of failure.
std::string Kind(const NodeFailure& failure) {
  std::string kind;
  std::string_view rest = Reason(failure);
  while (!rest.empty()) {
    const size_t space = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, space);
    kind += IsOneNodesOwn(word, failure) ? "*" : word;
    kind += ' ';
    rest.remove_prefix(std::min(rest.size(), space + 1));
  }
  return kind;
}

}  // namespace

std::vector<std::string> FoldFailures(const std::vector<NodeFailure>& failures) {
  struct Group {
    std::string kind;
    std::vector<const NodeFailure*> members;
  };
  std::vector<Group> groups;
  for (const NodeFailure& failure : failures) {
    const std::string kind = Kind(failure);
    auto group = std::ranges::find(groups, kind, &Group::kind);
    if (group == groups.end()) group = groups.insert(group, {kind, {}});
    group->members.push_back(&failure);
  }
  std::vector<std::string> lines;
  for (const Group& group : groups) {
    const NodeFailure& first = *group.members.front();
    if (group.members.size() == 1) {
      lines.push_back(first.message);
      continue;
    }
    std::vector<std::string> names;
    bool all_alike = true;
    for (const NodeFailure* member : group.members) {
      names.push_back(member->node);
      all_alike = all_alike && Reason(*member) == Reason(first);
    }
    lines.push_back(NameList(names, ", ", kMaxNames) + " (" + Count(names.size(), "node") +
                    (all_alike ? "): " : "), as " + first.node + ": ") +
                    std::string(Reason(first)));
  }
  return lines;
}

}  // namespace dslaunch
