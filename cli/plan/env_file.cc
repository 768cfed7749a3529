#include "cli/plan/env_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/os/ownership.h"
#include "base/text/sanitize.h"
#include "cli/plan/safe_variables.h"
#include "cli/plan/secrets.h"
#include "proto/contract/worker_env.h"

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

// Returns the index of the closing quote of a value that begins with a quote, or npos. A backslash
// in double quotes escapes the next byte.
size_t ClosingQuote(std::string_view value) {
  const char quote = value.front();
  for (size_t i = 1; i < value.size(); ++i) {
    if (value[i] == quote) return i;
    if (quote == '"' && value[i] == '\\') ++i;
  }
  return std::string_view::npos;
}

bool IsQuoted(std::string_view value) {
  return value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
         ClosingQuote(value) == value.size() - 1;
}

// Returns a quoted value as a shell reads it: without the quotes, and in double quotes without the
// backslash before a quote, a backslash, '$' and '`'.
std::string Unquoted(std::string_view value) {
  const bool has_escapes = value.front() == '"';
  value = value.substr(1, value.size() - 2);
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    const bool is_escape = has_escapes && value[i] == '\\' && i + 1 < value.size() &&
                           std::string_view("\"\\$`").find(value[i + 1]) != std::string_view::npos;
    if (is_escape) ++i;
    text += value[i];
  }
  return text;
}

// Returns "'NAME': ", or an empty string if the name may be part of a secret. That is assumed of
// names with characters other than capitals, digits, '_' and blanks, and of very long names.
std::string QuotedName(std::string_view name) {
  const bool is_plain =
      name.size() <= kMaxQuotedBytes && std::ranges::all_of(name, [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ' ';
      });
  return is_plain ? "'" + std::string(name) + "': " : "";
}

// Returns whether a shell would expand a part of the value.
bool HasExpansion(std::string_view value) {
  const bool is_quoted = IsQuoted(value);
  if (is_quoted && value.front() == '\'') return false;
  for (size_t i = 0; i < value.size(); ++i) {
    if (is_quoted && value[i] == '\\') {
      ++i;
      continue;
    }
    if (value[i] == '`') return true;
    if (value[i] != '$' || i + 1 == value.size()) continue;
    const char next = value[i + 1];
    if (std::isalnum(static_cast<unsigned char>(next)) || std::strchr("_{(", next)) return true;
  }
  return false;
}

// The way in which a file was found, which decides which variables the file may set.
enum class Found { kNamed, kInHome, kInFolder };

struct FileText {
  std::string text;
  struct stat status {};
};

Result<FileText> ReadText(const std::filesystem::path& path, Found found) {
  const auto bad = [&](const std::string& what) {
    return Error{ExitCode::kBadInput, Truncate(path.string()) + ": " + what};
  };
  UniqueFd file;
  if (found == Found::kNamed) {
    file.Reset(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
    if (!file) return bad(std::string(std::strerror(errno)) + "; make it readable or remove it");
  } else {
    Result<UniqueFd> trusted = OpenTrustedFile(path.string(), ::geteuid());
    if (!trusted.ok()) {
      return Error{trusted.error().code,
                   trusted.error().message +
                       "; to use it all the same, name it: DS_ENV_FILE=" + Truncate(path.string())};
    }
    file = *std::move(trusted);
  }
  FileText read;
  if (::fstat(file.get(), &read.status) != 0) return bad(std::strerror(errno));
  if (read.status.st_size > static_cast<off_t>(kMaxEnvFileBytes))
    return bad("larger than 1 MiB; this is not a file of variables");
  DSL_TRY_ASSIGN(read.text, ReadAll(file, path.string(), kMaxEnvFileBytes));
  return read;
}

// Returns an error if a variable of the file may load code. Used for a file in a current folder
// that does not contain the program. Variables of a rank's place are accepted, because such
// variables are left out anyway.
Result<void> CheckSafe(const EnvFile& file, const std::filesystem::path& path) {
  for (const auto& [name, value] : file.variables) {
    if (IsSafeVariable(name) || IsPlaceVariable(name)) continue;
    return Error{ExitCode::kBadInput,
                 file.path + ": " + name + " " + kNotKnownSafe +
                     ", so it is not taken from a file in the current folder for a program that is "
                     "not there; give --env " +
                     name + "=VALUE, put it into ~/" + kEnvFileName +
                     ", or name the file: DS_ENV_FILE=" + Truncate(path.string())};
  }
  return {};
}

// Returns a notice if other users can read a secret in the file, else an empty string.
std::string ReadableSecret(const EnvFile& file, const struct stat& status) {
  if (!OthersMayRead(status, ::geteuid())) return "";
  const auto secret = std::ranges::find_if(file.variables, [](const auto& variable) {
    return NamesSecret(variable.first) || MaskedText(variable.second) != variable.second;
  });
  if (secret == file.variables.end()) return "";
  return file.path + " can be read by other users and holds " + secret->first + "; chmod 600 " +
         file.path;
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
    const auto bad = [&](std::string_view name, const std::string& what) {
      return Error{ExitCode::kBadInput, place + QuotedName(name) + what};
    };
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return bad(line.substr(0, line.find_first_of(" \t")),
                 "there is no '='; a line is NAME=VALUE, or begins with '#'");
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
    file.variables.emplace_back(name, IsQuoted(value) ? Unquoted(value) : std::string(value));
    if (HasExpansion(value)) {
      file.notices.push_back(place + std::string(name) +
                             " is used literally: no shell on the nodes expands it; put it "
                             "in a script for --venv_script, where bash does");
    }
  }
  return file;
}

Result<std::vector<EnvFile>> ReadEnvFiles(const std::vector<std::string>& environment,
                                          const std::string& cwd, bool runs_code_of_cwd) {
  const char* const chosen = FindIn(environment, kEnvFileVariable);
  const std::string name = chosen == nullptr ? kEnvFileName : chosen;
  const char* const home = FindIn(environment, "HOME");
  std::vector<EnvFile> files;
  std::vector<std::filesystem::path> seen;
  for (const bool in_home : {true, false}) {
    const std::string folder = !in_home ? cwd : home == nullptr ? "" : home;
    if (folder.empty() || name.empty()) continue;
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    if (error || std::ranges::find(seen, real) != seen.end()) continue;
    if (!std::filesystem::is_regular_file(real, error)) continue;
    seen.push_back(real);
    const Found found = name.starts_with('/') ? Found::kNamed
                        : in_home             ? Found::kInHome
                                              : Found::kInFolder;
    DSL_TRY_ASSIGN(const FileText read, ReadText(path, found));
    DSL_TRY_ASSIGN(EnvFile file, ParseEnvFile(read.text, Truncate(path.string())));
    if (found == Found::kInFolder && !runs_code_of_cwd) DSL_TRY(CheckSafe(file, path));
    if (const std::string notice = ReadableSecret(file, read.status); !notice.empty())
      file.notices.push_back(notice);
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
