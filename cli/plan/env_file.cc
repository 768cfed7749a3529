#include "cli/plan/env_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/sanitize.h"

namespace dslaunch {
namespace {

constexpr char kEnvFileVariable[] = "DS_ENV_FILE";
constexpr size_t kMaxQuotedBytes = 60;
constexpr std::string_view kExport = "export";

bool IsBlank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

bool IsName(std::string_view text) {
  const auto letter = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
  };
  return !text.empty() && letter(text.front()) && std::ranges::all_of(text, [&](char c) {
    return letter(c) || std::isdigit(static_cast<unsigned char>(c));
  });
}

bool IsQuoted(std::string_view value) {
  return value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
         value.back() == value.front();
}

// Whether a shell would replace something in it.
bool HasExpansion(std::string_view value) {
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i] == '`') return true;
    if (value[i] != '$' || i + 1 == value.size()) continue;
    const char next = value[i + 1];
    if (std::isalnum(static_cast<unsigned char>(next)) || std::strchr("_{(", next)) return true;
  }
  return false;
}

Result<std::string> ReadText(const std::filesystem::path& path) {
  const auto bad = [&](const std::string& what) {
    return Error{ExitCode::kBadInput, Truncate(path.string()) + ": " + what};
  };
  std::error_code error;
  if (std::filesystem::file_size(path, error) > kMaxEnvFileBytes)
    return bad("larger than 1 MiB; this is not a file of variables");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return bad(std::string(std::strerror(errno)) + "; make it readable or remove it");
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  return stream.bad() ? Result<std::string>(bad("cannot be read")) : std::move(text);
}

}  // namespace

Result<EnvFile> ParseEnvFile(std::string_view text, const std::string& path) {
  EnvFile file;
  file.path = path;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string place = path + ":" + std::to_string(number) + ": ";
    const auto bad = [&](std::string_view token, const std::string& what) {
      return Error{
          ExitCode::kBadInput,
          place + "'" + SanitizeForTerminal(token.substr(0, kMaxQuotedBytes)) + "': " + what};
    };
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return bad(line, "there is no '='; a line is NAME=VALUE, or begins with '#'");
    }
    std::string_view name = Trimmed(line.substr(0, equals));
    if (name.starts_with(kExport) && name.size() > kExport.size() && IsBlank(name[kExport.size()]))
      name = Trimmed(name.substr(kExport.size()));
    if (!IsName(name)) {
      return bad(name,
                 "no name for a variable; names are letters, digits and '_', and begin with "
                 "no digit");
    }
    const std::string_view value = Trimmed(line.substr(equals + 1));
    if (value.find('\0') != std::string_view::npos)
      return bad(name, "its value has a NUL byte, which no variable can have; remove it");
    file.variables.emplace_back(name, value);
    if (HasExpansion(value)) {
      file.notices.push_back(place + std::string(name) +
                             " is used literally: no shell on the nodes expands it; put it "
                             "in a script for --venv_script, where bash does");
    } else if (IsQuoted(value)) {
      file.notices.push_back(place + std::string(name) +
                             ": the quotes are part of its value, since no shell reads it; remove "
                             "them, blanks need none");
    }
  }
  return file;
}

Result<std::vector<EnvFile>> ReadEnvFiles(const std::vector<std::string>& environment,
                                          const std::string& cwd) {
  const char* const chosen = FindIn(environment, kEnvFileVariable);
  const std::string name = chosen == nullptr ? kEnvFileName : chosen;
  const char* const home = FindIn(environment, "HOME");
  std::vector<EnvFile> files;
  std::vector<std::filesystem::path> seen;
  for (const std::string& folder : {std::string(home == nullptr ? "" : home), cwd}) {
    if (folder.empty() || name.empty()) continue;
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    if (error || std::ranges::find(seen, real) != seen.end()) continue;
    if (!std::filesystem::is_regular_file(real, error)) continue;
    seen.push_back(real);
    DSL_TRY_ASSIGN(const std::string text, ReadText(path));
    DSL_TRY_ASSIGN(EnvFile file, ParseEnvFile(text, Truncate(path.string())));
    files.push_back(std::move(file));
  }
  if (chosen != nullptr && !name.empty() && files.empty()) {
    return Error{ExitCode::kBadInput, std::string(kEnvFileVariable) + "=" + Truncate(name) +
                                          ": no such file in the home folder or in " +
                                          Truncate(cwd) + "; make it, or unset the variable"};
  }
  return files;
}

const char* FindIn(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name))
      return entry.c_str() + name.size() + 1;
  }
  return nullptr;
}

}  // namespace dslaunch
