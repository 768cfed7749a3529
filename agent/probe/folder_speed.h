// Measures how fast a folder's disk stores data.
#pragma once

#include <string>

#include "base/deadline.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// Returns `path` or, if it is missing, its nearest existing parent. Precondition: `path` is
// absolute.
std::string NearestFolder(const std::string& path);

// Writes up to 8 MiB to a nameless file in `folder` for about `duration`, and synchronizes each MiB
// to the disk. Returns the speed of the median MiB, or the trouble. Blocks for at most `patience`;
// a disk that does not answer occupies a thread until it does.
pb::FolderSpeed MeasureFolder(const pb::MeasuredFolder& folder, milliseconds duration,
                              milliseconds patience);

}  // namespace dslaunch
