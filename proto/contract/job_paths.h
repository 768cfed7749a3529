// The folders of a job's files, on its nodes and at its front end.
#pragma once

#include <sys/types.h>

#include <string>

namespace dslaunch {

// Returns the parent folder of the user's jobs: $XDG_STATE_HOME/dslaunch/jobs, otherwise the same
// below ~/.local/state. The home folder is $HOME if the user owns it (not so after `sudo -E`),
// otherwise the account's. Without a home folder, it is a folder in /tmp whose name contains the
// user's number. Arguments are the variables' values, nullptr if unset. The caller opens files
// below it with OpenOwnFolder(), which checks them.
std::string JobsFolder(const char* xdg_state_home, const char* home, uid_t user);

// Returns the folder for data that can be recreated: $XDG_CACHE_HOME/dslaunch, otherwise
// $HOME/.cache/dslaunch, or an empty string if neither variable is an absolute path. Arguments are
// the variables' values, nullptr if unset.
std::string CacheFolder(const char* xdg_cache_home, const char* home);

}  // namespace dslaunch
