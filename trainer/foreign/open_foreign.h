// Opens checkpoints of other programs, with error messages for a user who gave a path.
#pragma once

#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// Returns the plan of the checkpoint at `path` (foreign_checkpoint.h). Throws kBadInput if the path
// is not a checkpoint of another program, or if the checkpoint is damaged or not supported; throws
// kIo if a file cannot be read. The message also names a file that changed in the last minute,
// because the checkpoint may then be incomplete.
ForeignCheckpoint OpenForeign(const std::string& path, const ForeignOptions& options = {});

// Returns the first problem of a checkpoint: a file that is missing or too short. Returns ""
// without a problem. Reads only the sizes of files.
std::string ProblemOf(const ForeignCheckpoint& foreign);

// Throws kBadInput if the checkpoint at `path` has a problem (ProblemOf). The message also names a
// file that changed in the last minute.
void RequireWhole(const std::string& path, const ForeignCheckpoint& foreign);

}  // namespace dslaunch
