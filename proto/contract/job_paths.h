// Determines the folders of a job's files, on its nodes and at its front end.
#pragma once

#include <sys/types.h>

#include <string>

namespace dslaunch {

// Returns the parent folder of the user's jobs: $XDG_STATE_HOME/dslaunch/jobs, else the same folder
// below ~/.local/state. The home folder is $HOME if the user owns it (which is false after `sudo
// -E`), else the account's home folder. Without a home folder, returns a folder in /tmp whose name
// contains the user's id. Arguments are the values of the variables, nullptr if unset. The caller
// must open files below this folder with OpenOwnFolder(), which checks them.
std::string JobsFolder(const char* xdg_state_home, const char* home, uid_t user);

// Returns the folder for data that can be recreated: $XDG_CACHE_HOME/dslaunch, else
// $HOME/.cache/dslaunch, or an empty string if neither variable is an absolute path. Arguments are
// the values of the variables, nullptr if unset.
std::string CacheFolder(const char* xdg_cache_home, const char* home);

}  // namespace dslaunch
