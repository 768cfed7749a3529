// DeepSpeed's environment file: NAME=VALUE lines for the ranks of all nodes.
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
  std::vector<std::pair<std::string, std::string>> variables;  // in the order of the lines
  std::vector<std::string> notices;  // for the user: what DeepSpeed would have made of a value
};

// Skips blank lines and lines that begin with '#'. Removes blanks around name and value, `export`
// before a name, and one pair of quotes that encloses a value, with a shell's escapes in double
// quotes. All else of a value is literal, since no shell ever reads it. So `$` and '`', which
// DeepSpeed has a shell on the node expand, get a notice with a hint. kBadInput reads "path:line:
// 'NAME': what; hint", and quotes nothing that may be a secret. Pure.
Result<EnvFile> ParseEnvFile(std::string_view text, const std::string& path);

// Reads the file in HOME and then that in `cwd`, as far as they are there: later ones override
// earlier ones. One that is there twice over (both are one folder, or DS_ENV_FILE is absolute) is
// read once. `environment` is this process's, as NAME=VALUE; when DS_ENV_FILE names a file that is
// nowhere, that is an error.
// A file that the user did not name by an absolute DS_ENV_FILE is refused where another user may
// have written it, and the one in `cwd` also where a variable is not an IsSafeVariable, unless the
// ranks run code of that folder anyway (RunsCodeOf). A file with secrets that others may read gets
// a notice.
Result<std::vector<EnvFile>> ReadEnvFiles(const std::vector<std::string>& environment,
                                          const std::string& cwd, bool runs_code_of_cwd);

// The value of NAME in NAME=VALUE strings, or nullptr; points into `environment`.
const char* FindIn(const std::vector<std::string>& environment, std::string_view name);

}  // namespace dslaunch
