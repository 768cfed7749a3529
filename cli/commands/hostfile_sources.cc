#include "cli/commands/hostfile_sources.h"

#include <glob.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <unordered_set>
#include <utility>

#include "base/count.h"
#include "base/sanitize.h"
#include "hostfiles/host_words.h"

namespace dslaunch {
namespace {

constexpr size_t kMaxQuotedBytes = 60;
constexpr int kMaxIncludeDepth = 16;  // as OpenSSH
constexpr size_t kMaxConfigBytes = 4u << 20;

Error Usage(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

std::string Shown(std::string_view text) {
  return "'" + SanitizeForTerminal(text.substr(0, kMaxQuotedBytes)) +
         (text.size() > kMaxQuotedBytes ? "...'" : "'");
}

std::vector<std::string> EachOnce(std::vector<std::string> names) {
  std::unordered_set<std::string> seen;
  std::erase_if(names, [&](const std::string& name) { return !seen.insert(name).second; });
  return names;
}

// The node list's text up to the next comma outside of brackets; nullopt: brackets do not match.
std::optional<std::string_view> TakeExpression(std::string_view& list) {
  bool inside = false;
  size_t end = 0;
  for (; end < list.size(); ++end) {
    if (list[end] == '[' && inside) return std::nullopt;
    if (list[end] == ']' && !inside) return std::nullopt;
    if (list[end] == '[') inside = true;
    if (list[end] == ']') inside = false;
    if (list[end] == ',' && !inside) break;
  }
  if (inside) return std::nullopt;
  const std::string_view expression = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return expression;
}

// A number of a range: its digits may begin with zeros that count.
struct Bound {
  size_t value = 0;
  size_t width = 0;
};

std::optional<Bound> ReadBound(std::string_view digits) {
  Bound bound;
  bound.width = digits.size();
  const auto [end, status] =
      std::from_chars(digits.data(), digits.data() + digits.size(), bound.value);
  const bool whole = status == std::errc() && end == digits.data() + digits.size();
  return whole ? std::optional(bound) : std::nullopt;
}

// What stands between brackets: "001-003,007".
Result<std::vector<std::string>> ExpandRanges(std::string_view ranges) {
  std::vector<std::string> numbers;
  while (true) {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    const size_t dash = std::min(range.find('-'), range.size());
    const std::optional<Bound> first = ReadBound(range.substr(0, dash));
    const std::optional<Bound> last =
        dash == range.size() ? first : ReadBound(range.substr(dash + 1));
    if (!first || !last || last->value < first->value)
      return Usage(Shown(range) + " is not a range of numbers such as 001-016");
    if (last->value - first->value >= kMaxListedNodes - numbers.size())
      return Usage(Shown(range) + " stands for too many nodes");
    const size_t more = last->value - first->value;  // the last may be the largest number there is
    for (size_t i = 0; i <= more; ++i) {
      const std::string digits = std::to_string(first->value + i);
      numbers.push_back(std::string(first->width - std::min(first->width, digits.size()), '0') +
                        digits);
    }
    if (range.size() == ranges.size()) return numbers;
    ranges.remove_prefix(range.size() + 1);
  }
}

// "gpu[1-2]-ib[0-1]": the last brackets count fastest.
Result<std::vector<std::string>> ExpandExpression(std::string_view expression) {
  std::vector<std::string> names = {""};
  while (!expression.empty()) {
    const size_t open = std::min(expression.find('['), expression.size());
    for (std::string& name : names) name += expression.substr(0, open);
    expression.remove_prefix(open);
    if (expression.empty()) break;
    const size_t close = expression.find(']');
    DSL_TRY_ASSIGN(const std::vector<std::string> numbers,
                   ExpandRanges(expression.substr(1, close - 1)));
    if (numbers.size() > kMaxListedNodes / names.size())
      return Usage(Shown(expression) + " stands for too many nodes");
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    expression.remove_prefix(close + 1);
  }
  return names;
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// The words of a line of ssh_config: "Host = a b", quotes around one kept together.
std::vector<std::string> ConfigWords(std::string_view line) {
  std::vector<std::string> words;
  while (true) {
    while (!line.empty() && (IsBlank(line.front()) || (words.size() == 1 && line.front() == '=')))
      line.remove_prefix(1);
    if (line.empty() || line.front() == '#') return words;
    size_t end = 0;
    if (line.front() == '"') {
      end = std::min(line.find('"', 1), line.size());
      words.emplace_back(line.substr(1, end - 1));
      line.remove_prefix(std::min(end + 1, line.size()));
      continue;
    }
    while (end < line.size() && !IsBlank(line[end]) && !(words.empty() && line[end] == '=')) ++end;
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

bool IsKeyword(std::string_view word, std::string_view keyword) {
  return std::ranges::equal(word, keyword, [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  });
}

std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  return paths;
}

Result<void> AddConfigHosts(const std::string& path, const std::string& ssh_folder, int depth,
                            std::vector<std::string>& hosts) {
  if (depth > kMaxIncludeDepth) {
    return Error{ExitCode::kBadInput, Truncate(path) + ": Include goes more than " +
                                          std::to_string(kMaxIncludeDepth) +
                                          " files deep; does a file include itself?"};
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConfigBytes)
    return Error{ExitCode::kBadInput,
                 Truncate(path) + ": larger than 4 MiB; this is not an ssh_config"};
  for (const SshConfigName& found : ParseSshConfigNames(text)) {
    if (!found.is_include) {
      hosts.push_back(found.name);
      continue;
    }
    const std::string pattern = found.name.starts_with("~/")
                                    ? ssh_folder + "/.." + found.name.substr(1)
                                : found.name.starts_with('/') ? found.name
                                                              : ssh_folder + "/" + found.name;
    for (const std::string& included : Glob(pattern))
      DSL_TRY(AddConfigHosts(included, ssh_folder, depth + 1, hosts));
  }
  return {};
}

}  // namespace

Result<std::vector<Host>> HostsFromNames(const std::vector<std::string>& names,
                                         const std::string& source) {
  HostList hosts;
  const Place place{source, 0};
  for (const std::string& name : EachOnce(names)) {
    Host host;
    Result<void> read = ParseHostName(name, place, host);
    if (read.ok()) read = hosts.Add(std::move(host), place);
    if (!read.ok()) return Usage(read.error().message);
  }
  Result<std::vector<Host>> all = hosts.Take(source, "name at least one");
  if (!all.ok()) return Usage(source + ": no hosts; name at least one");
  return all;
}

Result<std::vector<std::string>> ExpandNodeList(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::optional<std::string_view> expression = TakeExpression(list);
    if (!expression) return Usage("the brackets in " + Shown(list) + " do not match");
    if (expression->empty()) return Usage("a name is missing next to a comma");
    DSL_TRY_ASSIGN(std::vector<std::string> more, ExpandExpression(*expression));
    if (more.size() > kMaxListedNodes - names.size())
      return Usage(Shown(*expression) + " stands for too many nodes");
    names.insert(names.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  }
  return names;
}

Result<std::vector<std::string>> SlurmNodes(GetVariable getenv) {
  const auto find = [&](const char* name, const char* old_name) {
    const char* value = getenv(name);
    return std::pair(value != nullptr ? name : old_name,
                     value != nullptr ? value : getenv(old_name));
  };
  const auto [list_name, list] = find("SLURM_JOB_NODELIST", "SLURM_NODELIST");
  if (list == nullptr || *list == '\0') {
    return Usage(
        "--slurm: SLURM_JOB_NODELIST is not set; run this inside of an allocation (salloc, "
        "sbatch)");
  }
  Result<std::vector<std::string>> nodes = ExpandNodeList(list);
  if (!nodes.ok()) {
    return Usage(std::string("--slurm: ") + list_name + ": " + nodes.error().message +
                 "; give the nodes with --hosts (scontrol show hostnames lists them)");
  }
  const auto [count_name, count] = find("SLURM_JOB_NUM_NODES", "SLURM_NNODES");
  if (count != nullptr && count != std::to_string(nodes->size())) {
    return Usage(std::string("--slurm: ") + list_name + " has " + Count(nodes->size(), "node") +
                 ", but " + count_name + " is " + Truncate(count) +
                 "; unset what is left of another job, or give the nodes with --hosts");
  }
  return nodes;
}

std::vector<SshConfigName> ParseSshConfigNames(std::string_view text) {
  std::vector<SshConfigName> names;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::vector<std::string> words = ConfigWords(line);
    if (words.empty()) continue;
    const bool is_include = IsKeyword(words.front(), "include");
    if (!is_include && !IsKeyword(words.front(), "host")) continue;
    for (size_t i = 1; i < words.size(); ++i) {
      const bool is_pattern = words[i].find_first_of("*?!") != std::string::npos;
      if (is_include || !is_pattern) names.push_back({is_include, words[i]});
    }
  }
  return names;
}

Result<std::vector<std::string>> SshConfigHosts(const std::string& home) {
  if (home.empty()) return Usage("--ssh_config: HOME is not set, so ~/.ssh/config is nowhere");
  const std::string folder = home + "/.ssh";
  const std::string path = folder + "/config";
  if (!std::ifstream(path)) {
    return Usage("--ssh_config: " + Truncate(path) + ": " + std::strerror(errno) +
                 "; name the nodes with --hosts");
  }
  std::vector<std::string> hosts;
  DSL_TRY(AddConfigHosts(path, folder, 0, hosts));
  if (hosts.empty()) {
    return Usage("--ssh_config: " + Truncate(path) +
                 " has no Host line without a pattern; name the nodes with --hosts");
  }
  return EachOnce(std::move(hosts));
}

}  // namespace dslaunch
