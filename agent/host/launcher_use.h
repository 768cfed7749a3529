// Detects programs that start ranks themselves, such as torchrun and mpirun. If such a program were
// started once for each rank, it would run as many separate jobs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Returns whether the word names a Python interpreter, such as "python3", "python3.12" or
// "/opt/venv/bin/python".
bool IsPython(const std::string& word);

// The script or module that a Python interpreter runs.
struct PythonTarget {
  size_t at = 0;            // index in argv of the script, or of the module's name
  std::string module = {};  // name of the module; empty if a script is run
};
// Returns the script or module that the interpreter argv[at] runs; nullopt if it runs the text of
// -c, or no program.
std::optional<PythonTarget> TargetOfPython(const std::vector<std::string>& argv, size_t at);

enum class LauncherKind {
  kTorchrun,     // torchrun; dslaunch has all its options
  kDeepspeed,    // deepspeed; dslaunch has all its options
  kAccelerate,   // accelerate, some of whose options have other names in dslaunch
  kSameOptions,  // a launcher whose command line works with `dslaunch` in its place
  kModule,       // a launcher that starts a Python module in each rank
  kOther,
};

// A launcher that was found in a command line.
struct LauncherUse {
  LauncherKind kind = LauncherKind::kOther;
  std::string name;  // name for users, such as "torchrun" or "python3 -m torch.distributed.run"
  // Index in argv of the launcher's first word, after wrappers such as `nice`.
  size_t begin = 0;
  size_t arguments = 0;  // index in argv of the launcher's first argument
  std::string python;    // interpreter in the command line; empty if there is none
  std::string module;    // module that each rank runs; set for kModule
  std::string hint;      // text to type after "dslaunch"; set for kOther
  // Variables that `env` sets for the launcher, as NAME=VALUE.
  std::vector<std::string> variables;
  bool is_wrapped = false;  // whether a program runs it that does more than set variables

  bool operator==(const LauncherUse&) const = default;
};

// Returns the launcher that `argv` starts: a console script by its file name, or a module by
// `python -m`, also after wrappers such as env, nohup, timeout and `uv run`. Returns nullopt if
// there is no launcher.
std::optional<LauncherUse> FindLauncher(const std::vector<std::string>& argv);

// Returns the words to type after "dslaunch" and its options instead of `argv`. `use` is the
// launcher that FindLauncher() found in `argv`.
std::string LineInPlaceOf(const LauncherUse& use, const std::vector<std::string>& argv);

// Returns the message that refuses `use` and suggests the command `line`.
std::string LauncherRefusal(const LauncherUse& use, const std::string& line);

// A command in a shell script that starts a launcher.
struct ShellLauncher {
  size_t line = 0;  // number of the line in the script, from 1
  std::string name;
  bool operator==(const ShellLauncher&) const = default;
};

// Returns the first command in `script` that starts a launcher, whether or not the shell would
// reach the command; nullopt if there is none.
std::optional<ShellLauncher> FindLauncherInShell(const std::string& script);

// Fails with kUsage, naming the node, if `argv` starts a launcher. The launcher may be named by
// argv[0], by the file to which argv[0] links, or by the Python module that a console script calls.
// argv[0] is a path on this node. A file that cannot be read is not a launcher.
Result<void> CheckNoLauncher(const std::vector<std::string>& argv, const std::string& node_name);

// Returns a warning if `argv` runs a shell script, or a shell with -c, that contains a command
// which starts a launcher. Otherwise returns an empty string. `cwd` is the folder in which `argv`
// runs. Reads the script on this node.
std::string ShellLauncherWarning(const std::vector<std::string>& argv, const std::string& cwd);

}  // namespace dslaunch
