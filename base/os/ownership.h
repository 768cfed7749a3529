// Checks the owners of files and folders, so that dslaunch never reads records and configurations
// that another user could have written.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

enum class IfMissing { kMake, kFail };

// Opens the folder at the absolute `path`, one component at a time from "/". Checks that only root
// and `user` can have created the folder and can replace it. Each folder and link on the way must
// belong to root or `user`, and where others may write, the sticky bit must prevent renaming. The
// folder itself must belong to `user` and not be writable by others.
// With kMake, creates missing folders with mode 0700. With kFail, the returned descriptor is
// invalid if the folder is missing. The descriptor can be used in the *at functions only (O_PATH).
// Fails with kIo; the message names the folder, the reason and the owner.
Result<UniqueFd> OpenOwnFolder(const std::string& path, uid_t user, IfMissing if_missing);

// Opens the folder `below`, a relative path, in `base`, a folder that the user named and that
// others may share. `base` itself is not checked. Every folder below `base` must belong to `user`,
// must not be a link, and must not be writable by others. `if_missing` and errors are as for
// OpenOwnFolder().
Result<UniqueFd> OpenOwnFolderIn(const std::string& base, const std::string& below, uid_t user,
                                 IfMissing if_missing);

// Opens the file `name` in an open folder for reading. It must be a regular file that belongs to
// `user`, must not be a link, and must not be writable by others. The returned descriptor is
// invalid if the file is missing. Fails with kIo; `path` is used in the message only.
Result<UniqueFd> OpenOwnFile(const UniqueFd& folder, const std::string& name,
                             const std::string& path, uid_t user);

// Opens a file that the user did not name, such as a configuration in the current folder. It must
// be a regular file that belongs to `user` or root and is not writable by others; a link to the
// file must also belong to `user` or root. Fails with kBadInput, naming the file, its owner and its
// mode.
Result<UniqueFd> OpenTrustedFile(const std::string& path, uid_t user);

// Returns whether users other than `user` and root may read the file.
bool OthersMayRead(const struct stat& status, uid_t user);

// Returns the whole content of an open file. Fails with kIo if the file cannot be read or has more
// than `max_bytes`.
Result<std::string> ReadAll(const UniqueFd& file, const std::string& path, size_t max_bytes);

// Returns the home folder of an account from the system's user database; empty if there is no such
// account.
std::string HomeOf(uid_t user);

}  // namespace dslaunch
