#include "agent/job_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dslaunch {
namespace {

// Makes every missing folder of `path`, private to the user.
Result<void> MakeFolders(const std::string& path, const std::string& node_name) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error{ExitCode::kIo, node_name + ": cannot make the log folder " + folder + ": " +
                                      strerror(errno) + "; choose another with --log_dir"};
    }
    if (slash == std::string::npos) return {};
  }
}

}  // namespace

Result<JobFolder> JobFolder::Create(const std::string& base, const std::string& job_id,
                                    const std::string& node_name, const Environment& environment) {
  std::string path = base;
  if (path.empty()) {
    const char* state = FindVariable(environment, "XDG_STATE_HOME");
    const char* home = FindVariable(environment, "HOME");
    if (state != nullptr && *state == '/')
      path = state;
    else if (home != nullptr && *home == '/')
      path = std::string(home) + "/.local/state";
    else
      path = "/tmp/dslaunch-" + std::to_string(geteuid());
    path += "/dslaunch/jobs";
  }
  std::string node_folder = node_name;
  std::replace(node_folder.begin(), node_folder.end(), '/', '_');
  path += "/" + job_id + "/nodes/" + node_folder;
  DSL_TRY(MakeFolders(path, node_name));
  return JobFolder(std::move(path), node_name);
}

std::string JobFolder::AttemptFolder(uint64_t attempt) const {
  return path_ + "/attempt_" + std::to_string(attempt);
}

Result<std::string> JobFolder::MakeRankFolder(uint64_t attempt, uint32_t rank) const {
  std::string folder = AttemptFolder(attempt) + "/rank_" + std::to_string(rank);
  DSL_TRY(MakeFolders(folder, node_name_));
  return folder;
}

}  // namespace dslaunch
