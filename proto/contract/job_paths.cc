#include "proto/contract/job_paths.h"

#include <sys/stat.h>

#include "base/os/ownership.h"

namespace dslaunch {
namespace {

bool IsFolderOf(uid_t user, const std::string& path) {
  struct stat status {};
  return path.starts_with('/') && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == user;
}

}  // namespace

std::string JobsFolder(const char* xdg_state_home, const char* home, uid_t user) {
  constexpr char kJobs[] = "/dslaunch/jobs";
  if (xdg_state_home != nullptr && *xdg_state_home == '/')
    return std::string(xdg_state_home) + kJobs;
  std::string own_home = home == nullptr ? "" : home;
  if (!IsFolderOf(user, own_home)) own_home = HomeOf(user);
  if (IsFolderOf(user, own_home)) return own_home + "/.local/state" + kJobs;
  return "/tmp/dslaunch-" + std::to_string(user) + kJobs;
}

std::string CacheFolder(const char* xdg_cache_home, const char* home) {
  if (xdg_cache_home != nullptr && *xdg_cache_home == '/')
    return std::string(xdg_cache_home) + "/dslaunch";
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/dslaunch" : "";
}

}  // namespace dslaunch
