// Reads DeepSpeed's environment file, whose lines NAME=VALUE are variables for the ranks of all
// nodes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Default file name; DS_ENV_FILE overrides it.
inline constexpr char kEnvFileName[] = ".deepspeed_env";
inline constexpr size_t kMaxEnvFileBytes = 1u << 20;

struct EnvFile {
  std::string path;
  // Names and values of the variables, in the order of their lines.
  std::vector<std::pair<std::string, std::string>> variables;
  // Notices for the user about values that DeepSpeed would have changed.
  std::vector<std::string> notices;
};

// Parses the file. Skips blank lines and lines that begin with '#'. Removes blanks around name and
// value, `export` before a name, and one pair of quotes that encloses a value, with a shell's
// escapes in double quotes. The rest of a value is literal, because no shell reads it. A `$` or '`'
// gets a notice with a hint, because with DeepSpeed a shell on the node expands it. Errors are
// kBadInput of the form "path:line: 'NAME': what; hint" and never quote a possible secret. Has no
// side effects.
Result<EnvFile> ParseEnvFile(std::string_view text, const std::string& path);

// Reads the file in HOME and then the file in `cwd`, if they exist; later variables override
// earlier ones. A file that is found twice (both folders are the same, or DS_ENV_FILE is absolute)
// is read once. `environment` is this process's environment as NAME=VALUE strings. Returns an error
// if the file of DS_ENV_FILE does not exist.
//
// A file that the user did not name by an absolute DS_ENV_FILE is refused if another user may have
// written it. The file in `cwd` is also refused if IsSafeVariable() is false for one of its
// variables. With `runs_code_of_cwd` (RunsCodeOf()) all its variables are accepted, because the
// ranks run code of that folder anyway. A file with secrets that other users may read gets a
// notice.
Result<std::vector<EnvFile>> ReadEnvFiles(const std::vector<std::string>& environment,
                                          const std::string& cwd, bool runs_code_of_cwd);

// Returns the value of `name` in NAME=VALUE strings, or nullptr if it is missing. The result points
// into `environment`.
const char* FindIn(const std::vector<std::string>& environment, std::string_view name);

}  // namespace dslaunch
