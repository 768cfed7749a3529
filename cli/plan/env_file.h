// DeepSpeed's environment file: lines NAME=VALUE for the ranks of all nodes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dslaunch {

inline constexpr char kEnvFileName[] = ".deepspeed_env";  // DS_ENV_FILE names another
inline constexpr size_t kMaxEnvFileBytes = 1u << 20;

struct EnvFile {
  std::string path;
  std::vector<std::pair<std::string, std::string>> variables;  // in the order of lines
  // Notices for the user: values that DeepSpeed would have changed.
  std::vector<std::string> notices;
};

// Parses the file. Skips blank lines and lines that begin with '#'. Removes blanks around name and
// value, `export` before a name, and one pair of quotes that encloses a value, with a shell's
// escapes in double quotes. The rest of a value is literal, because no shell reads it; so a `$` or
// '`', which a shell on the node expands for DeepSpeed, gets a notice with a hint. kBadInput has
// the form "path:line: 'NAME': what; hint", and never quotes a possible secret. Pure.
Result<EnvFile> ParseEnvFile(std::string_view text, const std::string& path);

// Reads the file in HOME and then the one in `cwd`, if they exist; later ones override earlier
// ones. A file that is both (both are one folder, or DS_ENV_FILE is absolute) is read once.
// `environment`: this process's, as NAME=VALUE. It is an error if the file of DS_ENV_FILE does not
// exist. A file that the user did not name by an absolute DS_ENV_FILE is refused if another user
// may have written it; the one in `cwd` also if a variable is not an IsSafeVariable, unless the
// ranks run code of that folder anyway (RunsCodeOf). A file with secrets that others may read gets
// a notice.
Result<std::vector<EnvFile>> ReadEnvFiles(const std::vector<std::string>& environment,
                                          const std::string& cwd, bool runs_code_of_cwd);

// Returns the value of NAME in NAME=VALUE strings, or nullptr. It points into `environment`.
const char* FindIn(const std::vector<std::string>& environment, std::string_view name);

}  // namespace dslaunch
