#include "agent/host/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "agent/host/interpreter.h"
#include "agent/host/launcher_use.h"
#include "agent/host/program_machine.h"
#include "agent/host/script_options.h"
#include "base/os/subprocess.h"

namespace dslaunch {
namespace {

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool IsExecutableFile(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string Absolute(const std::string& path, const std::string& cwd) {
  return path.empty() || path.front() == '/' ? path : cwd + "/" + path;
}

Error NotFound(const std::string& node, const std::string& what) {
  return Error{ExitCode::kNotFound, node + ": " + what};
}

Result<std::string> FindInPath(const std::string& name, const Environment& environment,
                               const std::string& cwd, const std::string& node) {
  const char* path = FindVariable(environment, "PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    const std::string candidate = Absolute((folder.empty() ? "." : folder) + "/" + name, cwd);
    if (IsExecutableFile(candidate)) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return NotFound(node,
                  "program '" + name + "' is not in PATH there; give its path, as in ./" + name);
}

// Returns the beginning of a script, where hand-written scripts define their options. A file that
// is not regular may be readable only once, so its text is empty.
std::string ReadSource(const std::string& path) {
  constexpr size_t kMaxSourceBytes = 1u << 20;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxSourceBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// Returns the path of a module's source file in the working directory; empty if the module is
// elsewhere.
std::string ModuleSource(const std::string& name, const std::string& cwd) {
  std::string path = name;
  std::ranges::replace(path, '.', '/');
  for (const char* end : {".py", "/__main__.py"}) {
    const std::string candidate = Absolute(path + end, cwd);
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  return "";
}

// Returns the interpreter's options that precede the script or module. For torchrun's --run_path,
// code inside the interpreter runs the script, so that code first sets sys.argv to the script and
// its arguments.
std::vector<std::string> InterpreterOptions(pb::Program::Form form) {
  switch (form) {
    case pb::Program::MODULE:
      return {"-u", "-m"};
    case pb::Program::RUN_PATH:
      return {"-u", "-c",
              "import runpy, sys; del sys.argv[0]; "
              "runpy.run_path(sys.argv[0], run_name='__main__')"};
    default:
      return {"-u"};
  }
}

}  // namespace

Environment NodeEnvironment() {
  Environment environment = CurrentEnvironment();
  std::erase_if(environment, [](const std::string& entry) {
    return entry.starts_with("SSH_CLIENT=") || entry.starts_with("SSH_CONNECTION=") ||
           entry.starts_with("SSH_TTY=");
  });
  return environment;
}

Environment MergeEnvironment(Environment base,
                             const google::protobuf::RepeatedPtrField<pb::EnvVar>& overrides) {
  for (const pb::EnvVar& variable : overrides) {
    const std::string prefix = variable.name() + "=";
    bool found = false;
    for (std::string& entry : base) {
      if (entry.compare(0, prefix.size(), prefix) != 0) continue;
      entry = prefix + variable.value();
      found = true;
      break;
    }
    if (!found) base.push_back(prefix + variable.value());
  }
  return base;
}

Environment WithVariable(Environment environment, const std::string& name,
                         const std::string& value) {
  std::erase_if(environment,
                [&](const std::string& entry) { return entry.starts_with(name + "="); });
  environment.push_back(name + "=" + value);
  return environment;
}

const char* FindVariable(const Environment& environment, const std::string& name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.compare(0, name.size(), name) == 0) {
      return entry.c_str() + name.size() + 1;
    }
  }
  return nullptr;
}

Result<void> CheckWorkingDirectory(const std::string& cwd, const std::string& node_name) {
  if (IsDirectory(cwd)) return {};
  return Error{
      ExitCode::kBadInput,
      node_name + ": working directory " + cwd +
          " does not exist there; start dslaunch in a folder that every node has, or name one with "
          "--chdir"};
}

namespace {

Result<std::string> FindFile(const std::string& name, const Environment& environment,
                             const std::string& cwd, const std::string& node) {
  if (name.find('/') == std::string::npos) return FindInPath(name, environment, cwd, node);
  const std::string path = Absolute(name, cwd);
  if (IsExecutableFile(path)) return path;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return NotFound(node, "program '" + name + "': " + strerror(errno) +
                              (name == path ? "" : " (in " + cwd + ")"));
  }
  return Error{ExitCode::kCannotExecute,
               node + ": program '" + name + "' is " +
                   (S_ISDIR(info.st_mode) ? "a folder" : "not executable; try: chmod +x " + name)};
}

}  // namespace

Result<std::string> FindExecutable(const std::string& name, const Environment& environment,
                                   const std::string& cwd, const std::string& node) {
  DSL_TRY_ASSIGN(std::string path, FindFile(name, environment, cwd, node));
  DSL_TRY(CheckMachine(path, name, node));
  DSL_TRY(CheckInterpreter(path, cwd, name, node));
  return path;
}

std::string PythonInterpreter(const pb::Program& program, const Environment& environment) {
  if (const char* chosen = FindVariable(environment, "PYTHON_EXEC")) return chosen;
  const char* const venv = FindVariable(environment, "VIRTUAL_ENV");
  if (venv != nullptr && *venv != '\0') return std::string(venv) + "/bin/python3";
  const std::string& front = program.python_environment().folder();
  return front.empty() ? "python3" : front + "/bin/python3";
}

ResolvedProgram ComposeProgram(const pb::Program& program, const Environment& environment) {
  ResolvedProgram composed;
  composed.cwd = program.cwd();
  composed.argv.assign(program.argv().begin(), program.argv().end());
  if (program.form() == pb::Program::PLAIN) return composed;
  const std::string& name = program.argv(0);
  const std::string source = program.form() == pb::Program::MODULE
                                 ? ModuleSource(name, program.cwd())
                                 : Absolute(name, program.cwd());
  std::vector<std::string> front = InterpreterOptions(program.form());
  front.insert(front.begin(), PythonInterpreter(program, environment));
  composed.local_rank_at = front.size() + 1;
  if (!program.no_local_rank() && !source.empty())
    composed.local_rank_option = LocalRankOption(ReadSource(source));
  composed.argv.insert(composed.argv.begin(), front.begin(), front.end());
  return composed;
}

Result<ResolvedProgram> ResolveProgram(const pb::Program& program, const Environment& environment,
                                       const std::string& node_name) {
  DSL_TRY(CheckWorkingDirectory(program.cwd(), node_name));
  if (program.form() == pb::Program::SCRIPT || program.form() == pb::Program::RUN_PATH) {
    const std::string& name = program.argv(0);
    if (access(Absolute(name, program.cwd()).c_str(), R_OK) != 0) {
      return NotFound(node_name,
                      "script '" + name + "': " + strerror(errno) + " (in " + program.cwd() + ")");
    }
  }
  ResolvedProgram resolved = ComposeProgram(program, environment);
  DSL_TRY_ASSIGN(resolved.argv.front(),
                 FindExecutable(resolved.argv.front(), environment, resolved.cwd, node_name));
  if (!program.nested()) {
    DSL_TRY(CheckNoLauncher(resolved.argv, node_name));
  }
  return resolved;
}

}  // namespace dslaunch
