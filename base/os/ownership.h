// The owner of files and folders, and which other users could have made them or may change them.
// Records and configurations that another user could have planted are never read.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

enum class IfMissing { kMake, kFail };

// Opens the folder at the absolute `path`, one step after the other from "/". Only root and `user`
// can have put it there and can replace it: every folder and link on the way belongs to one of the
// two, and where others may write, the sticky bit keeps them from renaming what is not theirs. The
// folder itself is `user`'s own and not writable by others. kMake makes what is missing, private to
// the user (0700); with kFail the descriptor is closed where the folder is missing.
// The descriptor is for the *at functions (O_PATH). kIo names the folder, why it is refused, and
// who owns it.
Result<UniqueFd> OpenOwnFolder(const std::string& path, uid_t user, IfMissing if_missing);

// The same for `below`, a relative path in a folder that the user named and that others may share:
// `base` itself is taken as it is. Every folder below it is `user`'s own, no link, and not writable
// by others.
Result<UniqueFd> OpenOwnFolderIn(const std::string& base, const std::string& below, uid_t user,
                                 IfMissing if_missing);

// Opens the file `name` of an open folder for reading: a regular file, `user`'s own, no link, not
// writable by others. Closed where it is missing. kIo names `path`, which is for the message only.
Result<UniqueFd> OpenOwnFile(const UniqueFd& folder, const std::string& name,
                             const std::string& path, uid_t user);

// Opens a file that the user did not name, such as a configuration in the current folder: a
// regular file that belongs to `user` or root and that others may not write; a link to it belongs
// to one of the two. kBadInput names the file, owner and mode.
Result<UniqueFd> OpenTrustedFile(const std::string& path, uid_t user);

// Whether users besides `user` and root may read the file.
bool OthersMayRead(const struct stat& status, uid_t user);

// The whole content of an open file. kIo: it cannot be read, or has more than `max_bytes`.
Result<std::string> ReadAll(const UniqueFd& file, const std::string& path, size_t max_bytes);

// The home folder of an account, as the system's user database has it; empty: none.
std::string HomeOf(uid_t user);

}  // namespace dslaunch
