#include "cli/transport/ssh/ssh_config_rules.h"

#include <algorithm>
#include <cctype>

#include "base/os/proc_text.h"
#include "base/text/split_lines.h"
#include "cli/transport/ssh/wildcard.h"

namespace dslaunch {
namespace {

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool IsPlain(std::string_view host) {
  return !host.empty() && std::ranges::all_of(host, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_' ||
           c == ':';
  });
}

// Removes the keyword from the line "Keyword value" or "Keyword=value" and returns it.
std::string ReadKeyword(std::string_view& line) {
  const auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  };
  skip_blanks();
  const size_t end = std::min(line.find_first_of(" ="), line.size());
  std::string keyword = LowerCase(line.substr(0, end));
  line.remove_prefix(end);
  skip_blanks();
  if (line.starts_with('=')) line.remove_prefix(1);
  skip_blanks();
  line = line.substr(0, line.find_last_not_of(' ') + 1);
  return keyword;
}

// Returns the value in a line "NAME value" of the output of `ssh -G`.
std::string_view ValueOf(std::string_view line) {
  const size_t space = line.find(' ');
  return space == std::string_view::npos ? "" : line.substr(space + 1);
}

// Returns whether a line lists algorithms. Such a line never names a host, although an algorithm's
// name may contain a short host name by chance.
bool ListsAlgorithms(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(' '));
  return name.ends_with("algorithms") || name == "ciphers" || name == "macs";
}

}  // namespace

SshConfigRules::SshConfigRules(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) Read(text);
}

void SshConfigRules::Condition::Add(std::string_view pattern) {
  if (pattern.starts_with('!'))
    excluded.emplace_back(pattern.substr(1));
  else
    patterns.emplace_back(pattern);
}

bool SshConfigRules::Condition::Holds(std::string_view host) const {
  const auto matches = [host](const std::string& pattern) {
    return WildcardMatches(pattern, host);
  };
  return std::ranges::any_of(patterns, matches) && std::ranges::none_of(excluded, matches);
}

void SshConfigRules::Read(std::string_view text) {
  conditions_.push_back({{"*"}, {}});  // condition of options before the first Host or Match line
  bool is_in_match = false;
  for (const std::string_view as_it_is : SplitLines(text)) {
    std::string blanks(as_it_is);
    for (char& c : blanks) {
      if (c == '\t' || c == '\r' || c == '\f') c = ' ';
    }
    std::string_view line = blanks;
    const std::string keyword = ReadKeyword(line);
    const bool is_plain = line.find_first_of("\"\\#'") == std::string_view::npos;
    if (keyword == "host") {
      is_in_match = false;
      may_share_ = may_share_ && is_plain;
      AddHost(line);
    } else if (keyword == "match") {
      is_in_match = true;
      may_share_ = may_share_ && is_plain;
      AddMatch(line);
    } else if (keyword == "hostname" && line != "%h") {
      conditions_.back().names_host = true;
      if (is_in_match) may_share_ = false;
    } else if (keyword == "include") {
      if (line.find_first_of("%$") != std::string_view::npos) may_share_ = false;
    } else if (keyword == "canonicalizehostname") {
      const std::string value = LowerCase(line);
      if (value != "no" && value != "false") may_share_ = false;
    }
  }
}

void SshConfigRules::AddHost(std::string_view patterns) {
  Condition& condition = conditions_.emplace_back();
  while (!patterns.empty()) condition.Add(TakeWord(patterns));
}

void SshConfigRules::AddMatch(std::string_view criteria) {
  while (!criteria.empty()) {
    std::string criterion = LowerCase(TakeWord(criteria));
    if (criterion.starts_with('!')) criterion.erase(0, 1);
    if (criterion.empty() || criterion == "all") continue;
    std::string_view values = TakeWord(criteria);
    // These criteria have the same value for all hosts of a class, so they cannot distinguish
    // hosts.
    if (criterion == "user" || criterion == "localuser") continue;
    if (criterion != "host" && criterion != "originalhost") may_share_ = false;
    Condition& condition = conditions_.emplace_back();
    while (!values.empty()) {
      const size_t comma = std::min(values.find(','), values.size());
      condition.Add(LowerCase(values.substr(0, comma)));
      values.remove_prefix(std::min(comma + 1, values.size()));
    }
  }
}

std::optional<std::string> SshConfigRules::ClassOf(std::string_view host) const {
  if (!may_share_ || !IsPlain(host)) return std::nullopt;
  std::string held;
  for (const Condition& condition : conditions_) {
    const bool holds = condition.Holds(host);
    if (holds && condition.names_host) return std::nullopt;
    held += holds ? '1' : '0';
  }
  return held;
}

std::vector<std::string> FilesThatSshReads(std::string_view verbose) {
  constexpr std::string_view kReads = "debug1: Reading configuration data ";
  std::vector<std::string> files;
  for (std::string_view line : SplitLines(verbose)) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(kReads)) files.emplace_back(line.substr(kReads.size()));
  }
  return files;
}

std::optional<std::string> DumpFor(std::string_view other, std::string_view dump,
                                   std::string_view host) {
  std::string changed;
  bool has_name = false;
  for (const std::string_view line : SplitLines(dump)) {
    const bool is_name = line.starts_with("hostname ");
    if (is_name && ValueOf(line) != host) return std::nullopt;
    has_name = has_name || is_name;
    if (is_name || (line.starts_with("host ") && ValueOf(line) == host)) {
      changed += std::string(line.substr(0, line.find(' ') + 1)) + std::string(other) + '\n';
      continue;
    }
    const std::string_view value = ListsAlgorithms(line) ? "" : ValueOf(line);
    if (value.find(host) != std::string_view::npos || value.find(other) != std::string_view::npos)
      return std::nullopt;
    changed += std::string(line) + '\n';
  }
  return has_name ? std::optional(changed) : std::nullopt;
}

}  // namespace dslaunch
