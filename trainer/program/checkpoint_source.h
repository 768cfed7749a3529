// Opens checkpoints of any program for the `dslaunch checkpoint` commands.
#pragma once

#include <optional>
#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// An opened checkpoint of dslaunch or of another program.
struct CheckpointSource {
  std::string path;
  // Files and tensors of the checkpoint. StoredTensors can read them, whichever program wrote them.
  Checkpoint checkpoint;
  // Plan of another program's checkpoint; nullopt if dslaunch wrote it.
  std::optional<ForeignCheckpoint> foreign;
};

// Returns whether the folder `path` is a single checkpoint that dslaunch wrote.
bool HasManifest(const std::string& path);

// Returns the folder of the checkpoint that the file `latest` in `path` names; `path` itself if
// `latest` is missing or does not name a checkpoint of dslaunch.
std::string LatestIn(const std::string& path);

// Opens the checkpoint at `path`, a file or a folder. Reads only names and positions. Throws
// kBadInput if `path` is not a checkpoint or is damaged. The message also names a file that changed
// in the last minute, because the checkpoint may then be incomplete.
CheckpointSource OpenSource(const std::string& path, const ForeignOptions& options = {});

// Returns the first problem of another program's checkpoint: a file that is missing or too short,
// or that changed in the last minute. Returns "" without a problem.
std::string ProblemOf(const CheckpointSource& source);

// Throws kBadInput unless the checkpoint is complete. Reads every byte of a checkpoint of dslaunch.
void RequireWhole(const CheckpointSource& source);

// Prints a line on stdout without the terminal control sequences in it, because names of folders,
// files and tensors may come from other programs.
void PrintNames(const std::string& line);

// Returns a string, made of the sizes and modification times of all files, that changes if another
// path is opened or a file changes.
std::string IdentityOf(const CheckpointSource& source);

}  // namespace dslaunch
