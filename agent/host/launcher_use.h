// Whether a program starts ranks itself, as torchrun and mpirun do. Started once for each rank, it
// would run as many separate jobs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// "python3", "python3.12", "/opt/venv/bin/python".
bool IsPython(const std::string& word);

// Where argv[at] is an interpreter: what it runs, as a script or as a module. nullopt: the text of
// -c, or nothing. Pure.
struct PythonTarget {
  size_t at = 0;            // in argv
  std::string module = {};  // empty: a script
};
std::optional<PythonTarget> TargetOfPython(const std::vector<std::string>& argv, size_t at);

enum class LauncherKind {
  kTorchrun,     // dslaunch has its options
  kDeepspeed,    // likewise
  kAccelerate,   // likewise, some by other names
  kSameOptions,  // its command line is understood with `dslaunch` in its place
  kModule,       // starts a Python module in each rank
  kOther,
};

// A launcher in a command line.
struct LauncherUse {
  LauncherKind kind = LauncherKind::kOther;
  std::string name;      // as shown to users: "torchrun", "python3 -m torch.distributed.run"
  size_t begin = 0;      // in argv: the first word of the launcher, after a wrapper such as `nice`
  size_t arguments = 0;  // in argv: the first argument of the launcher
  std::string python;    // the interpreter that was named; empty if none was
  std::string module;    // of kModule: what each rank is to run
  std::string hint;      // of kOther: what to type after "dslaunch"
  // Variables that `env` sets for the launcher, as NAME=VALUE.
  std::vector<std::string> variables;
  bool is_wrapped = false;  // by a program that does more than to set variables

  bool operator==(const LauncherUse&) const = default;
};

// The launcher that `argv` starts: a console script by its name, whatever its folder, or a module
// by `python -m`; also behind wrappers such as env, nohup, timeout and `uv run`. Pure.
std::optional<LauncherUse> FindLauncher(const std::vector<std::string>& argv);

// What to type after "dslaunch" and its options in place of `argv`, in which `use` was found. Pure.
std::string LineInPlaceOf(const LauncherUse& use, const std::vector<std::string>& argv);

// Why `use` is refused, and `line`, the command to type instead. Pure.
std::string LauncherRefusal(const LauncherUse& use, const std::string& line);

// A command of a shell script that starts a launcher.
struct ShellLauncher {
  size_t line = 0;  // counted from 1
  std::string name;
  bool operator==(const ShellLauncher&) const = default;
};

// The first one in `script`, whether or not the shell would come to it. Pure.
std::optional<ShellLauncher> FindLauncherInShell(const std::string& script);

// kUsage, naming the node, where `argv` starts a launcher by its name, by the file that argv[0]
// links to, or by the Python module that this file, a console script, calls. argv[0] is a path of
// this node; a file that cannot be read is not a launcher.
Result<void> CheckNoLauncher(const std::vector<std::string>& argv, const std::string& node_name);

// A warning where `argv`, run in the folder `cwd`, is a shell script, or a shell with -c, that has
// a command which starts a launcher; else empty. Reads the script on this node.
std::string ShellLauncherWarning(const std::vector<std::string>& argv, const std::string& cwd);

}  // namespace dslaunch
