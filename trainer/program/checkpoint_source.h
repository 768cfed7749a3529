// Opens checkpoints of any program for the commands `dslaunch checkpoint`.
#pragma once

#include <optional>
#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// An opened checkpoint of dslaunch or of another program.
struct CheckpointSource {
  std::string path;
  // Can be read by StoredTensors, whichever program wrote it.
  Checkpoint checkpoint;
  std::optional<ForeignCheckpoint> foreign;  // nullopt if dslaunch wrote the checkpoint
};

// Returns whether `path` is the folder of one checkpoint of dslaunch.
bool HasManifest(const std::string& path);

// Returns the folder of the checkpoint that the file `latest` in `path` names; `path` itself if
// that file does not name a checkpoint of dslaunch.
std::string LatestIn(const std::string& path);

// Opens the checkpoint at `path`, a file or a folder. Reads only names and positions. Throws
// kBadInput if `path` is not a checkpoint or is damaged. The message also names a file that changed
// in the last minute, because the checkpoint may then be incomplete.
CheckpointSource OpenSource(const std::string& path, const ForeignOptions& options = {});

// Returns the first problem of another program's checkpoint: a file that is missing or too short,
// or that changed in the last minute. "" if there is none.
std::string ProblemOf(const CheckpointSource& source);

// Throws kBadInput unless the checkpoint is complete. Reads every byte of a checkpoint of dslaunch.
void RequireWhole(const CheckpointSource& source);

// Prints a line on stdout, without control sequences of the terminal. Names of folders, files and
// tensors in the line may come from other programs.
void PrintNames(const std::string& line);

// Returns a text that changes if another path is opened or a file changes. It consists of the sizes
// and times of all files.
std::string IdentityOf(const CheckpointSource& source);

}  // namespace dslaunch
