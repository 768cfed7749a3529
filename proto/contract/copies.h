// Defines the limits of --copy and --copy_dir, and the variable that names the folder of the
// copies.
#pragma once

#include <cstdint>

namespace dslaunch {

// The variable of ranks whose value is the folder on the node that contains the copies.
inline constexpr char kCopyDirVariable[] = "DSLAUNCH_COPY_DIR";

// Maximum number of files, folders and links.
inline constexpr uint64_t kMaxCopyEntries = 1'000'000;
// The permission bits that are copied. They exclude set-user-ID and similar bits.
inline constexpr uint32_t kCopyModeBits = 0777;

}  // namespace dslaunch
