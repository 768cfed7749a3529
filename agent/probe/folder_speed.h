// Measures how fast the disk of a folder stores data.
#pragma once

#include <string>

#include "base/deadline.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// Returns `path`; if it does not exist, its nearest existing parent. Precondition: `path` is
// absolute.
std::string NearestFolder(const std::string& path);

// Writes up to 8 MiB to a nameless file in `folder` for about `duration`, and synchronizes each MiB
// to the disk. Returns the speed of the median MiB, or the reason of a failure. Blocks for at most
// `patience`; if the disk does not respond, a thread stays blocked until it does.
pb::FolderSpeed MeasureFolder(const pb::MeasuredFolder& folder, milliseconds duration,
                              milliseconds patience);

}  // namespace dslaunch
