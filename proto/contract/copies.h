// What --copy and --copy_dir may bring to a node.
#pragma once

#include <cstdint>

namespace dslaunch {

// Of ranks: the folder on the node of what was copied there.
inline constexpr char kCopyDirVariable[] = "DSLAUNCH_COPY_DIR";

inline constexpr uint64_t kMaxCopyEntries = 1'000'000;  // files, folders and links
inline constexpr uint32_t kCopyModeBits = 0777;  // of a file's mode; no set-user-ID and the like

}  // namespace dslaunch
