#include "cli/hostfile/hostfile_sources.h"

#include <glob.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_set>
#include <utility>

#include "base/text/sanitize.h"
#include "hostfiles/host_words.h"

namespace dslaunch {
namespace {

constexpr int kMaxIncludeDepth = 16;  // limit of nested Include lines, as in OpenSSH
constexpr size_t kMaxConfigBytes = 4u << 20;

Error Usage(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

std::vector<std::string> EachOnce(std::vector<std::string> names) {
  std::unordered_set<std::string> seen;
  std::erase_if(names, [&](const std::string& name) { return !seen.insert(name).second; });
  return names;
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Splits a line of ssh_config, such as "Host = a b", into words. Quoted words may contain blanks.
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

Result<std::vector<std::string>> SlurmNodes(const GetVariable& getenv) {
  Result<std::optional<std::vector<std::string>>> nodes = ReadSlurmNodes(getenv);
  if (!nodes.ok()) {
    return Usage("--slurm: " + nodes.error().message +
                 "; --hosts takes the nodes themselves (scontrol show hostnames lists them)");
  }
  if (*nodes) return **std::move(nodes);
  return Usage(
      "--slurm: SLURM_JOB_NODELIST is not set; run this inside of an allocation (salloc, sbatch)");
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
