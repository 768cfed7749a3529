// Opens checkpoints of any program for the commands of dslaunch checkpoint.
#pragma once

#include <optional>
#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// A checkpoint of dslaunch or of another program.
struct CheckpointSource {
  std::string path;
  Checkpoint checkpoint;                     // can be read by StoredTensors in either case
  std::optional<ForeignCheckpoint> foreign;  // nullopt for a checkpoint of dslaunch
};

// Whether `path` is the folder of one checkpoint of dslaunch.
bool HasManifest(const std::string& path);

// Returns the folder of the checkpoint that the file `latest` in `path` names; `path` itself if
// that file does not name one of dslaunch.
std::string LatestIn(const std::string& path);

// Opens the file or folder. Reads names and positions only. Throws kBadInput for anything else and
// for damage. The message also names a file that changed a moment ago, because the checkpoint may
// then be incomplete.
CheckpointSource OpenSource(const std::string& path, const ForeignOptions& options = {});

// Returns the first problem of a checkpoint of another program: a file that is missing or too
// short, or that changed a moment ago. "" if there is none.
std::string ProblemOf(const CheckpointSource& source);

// Throws kBadInput unless the checkpoint is complete. For a checkpoint of dslaunch, reads every
// byte.
void RequireWhole(const CheckpointSource& source);

// Prints a line on stdout. Names of folders, files and tensors in it may come from other programs.
void PrintNames(const std::string& line);

// Returns a text that changes if another path is opened or a file has changed: sizes and times of
// all files.
std::string IdentityOf(const CheckpointSource& source);

}  // namespace dslaunch
