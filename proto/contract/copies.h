// Limits of --copy and --copy_dir, and the variable that names the copies' folder.
#pragma once

#include <cstdint>

namespace dslaunch {

// Set for ranks: the folder on the node that contains the copies.
inline constexpr char kCopyDirVariable[] = "DSLAUNCH_COPY_DIR";

inline constexpr uint64_t kMaxCopyEntries = 1'000'000;  // number of files, folders and links
// Permissions that are copied; excludes set-user-ID and the like.
inline constexpr uint32_t kCopyModeBits = 0777;

}  // namespace dslaunch
