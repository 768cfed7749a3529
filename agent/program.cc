#include "agent/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "agent/subprocess.h"

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

Result<std::string> FindExecutable(const std::string& name, const Environment& environment,
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

std::string PythonInterpreter(const Environment& environment) {
  if (const char* chosen = FindVariable(environment, "PYTHON_EXEC")) return chosen;
  if (const char* venv = FindVariable(environment, "VIRTUAL_ENV"))
    return std::string(venv) + "/bin/python3";
  return "python3";
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

const char* FindVariable(const Environment& environment, const std::string& name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.compare(0, name.size(), name) == 0) {
      return entry.c_str() + name.size() + 1;
    }
  }
  return nullptr;
}

Result<ResolvedProgram> ResolveProgram(const pb::Program& program, const Environment& environment,
                                       const std::string& node_name) {
  ResolvedProgram resolved;
  resolved.cwd = program.cwd();
  if (!IsDirectory(resolved.cwd)) {
    return Error{ExitCode::kBadInput,
                 node_name + ": working directory " + resolved.cwd +
                     " does not exist there; start dslaunch in a folder that every node has"};
  }
  resolved.argv.assign(program.argv().begin(), program.argv().end());
  if (program.python()) {
    const std::string script = Absolute(resolved.argv.front(), resolved.cwd);
    if (access(script.c_str(), R_OK) != 0) {
      return NotFound(node_name, "script '" + resolved.argv.front() + "': " + strerror(errno) +
                                     " (in " + resolved.cwd + ")");
    }
    resolved.argv.insert(resolved.argv.begin(), PythonInterpreter(environment));
  }
  DSL_TRY_ASSIGN(resolved.argv.front(),
                 FindExecutable(resolved.argv.front(), environment, resolved.cwd, node_name));
  return resolved;
}

}  // namespace dslaunch
