#include "agent/host/python_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

constexpr char kVirtualEnv[] = "VIRTUAL_ENV";

// Returns the reason why the interpreter cannot be executed; empty if it can.
std::string TroubleWith(const std::string& interpreter) {
  struct stat info {};
  if (::stat(interpreter.c_str(), &info) == 0) {
    const bool may_run = S_ISREG(info.st_mode) && ::access(interpreter.c_str(), X_OK) == 0;
    return may_run ? "" : interpreter + " is not executable";
  }
  const int reason = errno;
  std::error_code is_no_link;
  const fs::path target = fs::read_symlink(interpreter, is_no_link);
  if (is_no_link) return interpreter + ": " + std::strerror(reason);
  return interpreter + " is a link to " + target.string() + ", which is not there";
}

Environment WithFirstInPath(Environment environment, const std::string& folder) {
  const char* const path = FindVariable(environment, "PATH");
  const std::string rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  return WithVariable(std::move(environment), "PATH", folder + ":" + rest);
}

bool GivesPath(const pb::Program& program) {
  const auto is_path = [](const pb::EnvVar& variable) { return variable.name() == "PATH"; };
  return std::ranges::any_of(program.env(), is_path) ||
         std::ranges::any_of(program.chosen_env(), is_path);
}

// Returns whether the name is "python", with or without a version, as in "python3.12".
bool IsPythonName(std::string_view name) {
  constexpr std::string_view kPython = "python";
  return name.starts_with(kPython) &&
         name.find_first_not_of("0123456789.", kPython.size()) == std::string_view::npos;
}

std::string LastName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Returns the first line of a script without "#!" and leading blanks; empty for any other file.
std::string InterpreterLine(const std::string& path) {
  constexpr size_t kMaxLineBytes = 4096;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxLineBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!text.starts_with("#!")) return "";
  std::string_view rest = std::string_view(text).substr(2);
  std::string_view line = TakeLine(rest);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return std::string(line);
}

}  // namespace

Result<PythonPlace> EnterPythonEnvironment(const pb::Program& program, Environment environment,
                                           const std::string& node_name) {
  PythonPlace place{std::move(environment)};
  const pb::PythonEnvironment& python = program.python_environment();
  const std::string& folder = python.folder();
  if (folder.empty()) return place;
  const char* const own = FindVariable(place.environment, kVirtualEnv);
  if (own != nullptr && *own != '\0' && own != folder) {
    if (python.need() == pb::PythonEnvironment::YES && !python.variable().empty()) {
      place.notice = node_name + ": " + kVirtualEnv + " is " + own +
                     " there, so ranks run its Python, not that of " + folder;
    }
    return place;
  }
  if (const std::string trouble = TroubleWith(folder + "/bin/python3"); !trouble.empty()) {
    const std::string what = node_name + ": the Python environment " + folder + ", " +
                             (python.variable().empty() ? "in which dslaunch is installed here"
                                                        : "which is active here") +
                             ", cannot be used there: " + trouble;
    if (python.need() == pb::PythonEnvironment::YES) {
      const bool is_script = program.form() != pb::Program::PLAIN;
      return Error{
          ExitCode::kNotFound,
          what + "; make it there at the same path, share its folder, or take each node's " +
              "own python3 (" + (is_script ? "-x PYTHON_EXEC=python3)" : "deactivate it here)")};
    }
    if (python.need() == pb::PythonEnvironment::PERHAPS)
      place.notice = what + "; a python3 that the program starts is another one";
    return place;
  }
  const char* const entered = FindVariable(place.environment, python.variable());
  if (python.variable().empty() || (entered != nullptr && entered == folder)) return place;
  place.environment = WithVariable(std::move(place.environment), python.variable(), folder);
  if (python.in_path() && !GivesPath(program))
    place.environment = WithFirstInPath(std::move(place.environment), folder + "/bin");
  return place;
}

std::string PythonInterpreterOf(const std::string& executable, const Environment& environment) {
  if (IsPythonName(LastName(executable))) return executable;
  std::string line = InterpreterLine(executable);
  std::string_view rest = line;
  std::string interpreter(TakeWord(rest));
  if (LastName(interpreter) == "env") {
    interpreter = std::string(TakeWord(rest));
    if (interpreter == "-S") interpreter = std::string(TakeWord(rest));
    if (!IsPythonName(interpreter)) return "";
    const Result<std::string> found = FindExecutable(interpreter, environment, "/", "");
    return found.ok() ? *found : "";
  }
  return IsPythonName(LastName(interpreter)) ? interpreter : "";
}

}  // namespace dslaunch
