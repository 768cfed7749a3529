// How fast a folder's disk stores data.
#pragma once

#include <string>

#include "base/deadline.h"
#include "proto/measure.pb.h"

namespace dslaunch {

// Returns `path` or, if it is missing, its nearest existing parent. Precondition: it is absolute.
std::string NearestFolder(const std::string& path);

// Writes up to 8 MiB to a file without a name in `path` for about `duration`, and synchronizes each
// MiB to the disk. The median MiB counts. Blocks for `patience` at most; a disk that
// does not answer keeps a thread until it does.
pb::FolderSpeed MeasureFolder(const pb::MeasuredFolder& folder, milliseconds duration,
                              milliseconds patience);

}  // namespace dslaunch
