// Where the files of a job are kept, on its nodes and at its front end.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <string>

namespace dslaunch {

// The folder with a folder for each of the user's jobs: $XDG_STATE_HOME/dslaunch/jobs or its usual
// places. The variables' values, nullptr when unset.
inline std::string JobsFolder(const char* xdg_state_home, const char* home, uid_t user) {
  std::string base;
  if (xdg_state_home != nullptr && *xdg_state_home == '/')
    base = xdg_state_home;
  else if (home != nullptr && *home == '/')
    base = std::string(home) + "/.local/state";
  else
    base = "/tmp/dslaunch-" + std::to_string(user);
  return base + "/dslaunch/jobs";
}

// Makes every missing folder of an absolute path, private to the user (0700). 0, or the errno of
// the one that could not be made, which `failed` then names.
inline int MakePrivateFolders(const std::string& path, std::string& failed) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      const int error_number = errno;
      failed = folder;
      return error_number;
    }
    if (slash == std::string::npos) return 0;
  }
}

}  // namespace dslaunch
