#include "cli/plan/python_environment.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "base/os/proc_text.h"
#include "base/os/subprocess.h"
#include "cli/plan/env_file.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

bool IsPythonFolder(const std::string& folder) {
  const auto is_there = [&](const char* name) {
    return ::access((folder + name).c_str(), F_OK) == 0;
  };
  return (is_there("/pyvenv.cfg") || is_there("/conda-meta")) && is_there("/bin/python3");
}

std::string FolderIn(const std::vector<std::string>& environment, const char* name) {
  const char* const folder = FindIn(environment, name);
  if (folder == nullptr || *folder != '/') return "";
  std::string text = folder;
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool IsInPath(const std::vector<std::string>& environment, const std::string& folder) {
  const char* const path = FindIn(environment, "PATH");
  return path != nullptr &&
         (":" + std::string(path) + ":").find(":" + folder + ":") != std::string::npos;
}

// Returns the folder in which the PATH of `environment` finds `python3`; empty if PATH finds none.
std::string FolderOfPython(const std::vector<std::string>& environment) {
  const char* const path = FindIn(environment, "PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const std::string element(rest.substr(0, rest.find(':')));
    if (::access((element + "/python3").c_str(), X_OK) == 0) return element;
    rest.remove_prefix(std::min(element.size() + 1, rest.size()));
  }
  return "";
}

bool IsOfSystem(std::string_view folder) {
  constexpr std::string_view kFolders[] = {"/usr/bin", "/bin", "/usr/local/bin"};
  return std::ranges::find(kFolders, folder) != std::end(kFolders);
}

bool IsShell(std::string_view name) {
  constexpr std::string_view kShells[] = {"sh", "bash", "dash", "zsh", "ksh", "fish"};
  return std::ranges::find(kShells, name) != std::end(kShells);
}

// Returns whether an interpreter runs the file, because the file begins with "#!".
bool IsScript(const std::string& path) { return ReadBeginning(path, 2) == "#!"; }

}  // namespace

std::string OwnPythonFolder(const std::string& argv0) {
  std::error_code error;
  fs::path program = FindProgram(argv0);
  if (program.empty() || !fs::equivalent(program, "/proc/self/exe", error))
    program = fs::read_symlink("/proc/self/exe", error);
  const fs::path bin = program.lexically_normal().parent_path();
  const std::string folder = bin.parent_path().string();
  return bin.filename() == "bin" && IsPythonFolder(folder) ? folder : "";
}

FrontPython FindFrontPython(const std::vector<std::string>& environment,
                            const std::string& installed_in) {
  FrontPython python;
  python.installed_in = installed_in;
  const std::string venv = FolderIn(environment, "VIRTUAL_ENV");
  const std::string conda = FolderIn(environment, "CONDA_PREFIX");
  const std::string first = FolderOfPython(environment);
  const bool is_conda =
      !conda.empty() && (installed_in.empty() || installed_in == conda) && first == conda + "/bin";
  if (!venv.empty()) {
    python.folder = venv;
    python.variable = "VIRTUAL_ENV";
  } else if (is_conda) {
    python.folder = conda;
    python.variable = "CONDA_PREFIX";
  } else {
    python.folder = installed_in;
  }
  if (python.folder.empty() && first.starts_with('/') && !IsOfSystem(first))
    python.other = first + "/python3";
  python.in_path = !python.variable.empty() && IsInPath(environment, python.folder + "/bin");
  return python;
}

pb::PythonEnvironment::Need PythonNeedOf(const std::vector<std::string>& words,
                                         const std::string& folder) {
  const auto is_of_folder = [&](const std::string& word) {
    return FindProgram(word).starts_with(folder + "/bin/");
  };
  const auto is_interpreter = [&](const std::string& word) {
    return word.starts_with("python") && is_of_folder(word);
  };
  if (is_of_folder(words.front()) || std::ranges::any_of(words, is_interpreter))
    return pb::PythonEnvironment::YES;
  const std::string program = FindProgram(words.front());
  const bool may_use = IsShell(fs::path(program).filename().string()) || IsScript(program);
  return may_use ? pb::PythonEnvironment::PERHAPS : pb::PythonEnvironment::NO;
}

}  // namespace dslaunch
