// Where the files of a job are kept, on its nodes and at its front end.
#pragma once

#include <sys/types.h>

#include <string>

namespace dslaunch {

// The folder with a folder for each of the user's jobs: $XDG_STATE_HOME/dslaunch/jobs, else below
// ~/.local/state. The home folder is $HOME if that folder is the user's own (as it is not after
// `sudo -E`), else the one of the account; without one the folder is in /tmp, under a name with the
// user's number. The variables' values, nullptr when unset. What is opened there is checked by
// OpenOwnFolder.
std::string JobsFolder(const char* xdg_state_home, const char* home, uid_t user);

// The folder of what can be made again: $XDG_CACHE_HOME/dslaunch, else $HOME/.cache/dslaunch;
// empty: neither variable is an absolute path. The variables' values, nullptr when unset.
std::string CacheFolder(const char* xdg_cache_home, const char* home);

}  // namespace dslaunch
