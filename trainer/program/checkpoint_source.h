// Opens checkpoints of any program for the commands of dslaunch checkpoint.
#pragma once

#include <optional>
#include <string>

#include "trainer/foreign/foreign_checkpoint.h"

namespace dslaunch {

// A checkpoint of dslaunch or of another program.
struct CheckpointSource {
  std::string path;
  Checkpoint checkpoint;                     // read alike by StoredTensors
  std::optional<ForeignCheckpoint> foreign;  // nullopt for one of dslaunch
};

// Whether `path` is the folder of one checkpoint of dslaunch.
bool HasManifest(const std::string& path);

// Returns the folder of the checkpoint that the file `latest` in `path` names; `path` itself if
// that file does not name one of dslaunch.
std::string LatestIn(const std::string& path);

// Opens the file or folder. Reads names and positions only. Throws kBadInput for anything else and
// for damage; the message names a file that was changed just now, because then the
// checkpoint may still be being saved.
CheckpointSource OpenSource(const std::string& path, const ForeignOptions& options = {});

// Returns the first problem of a checkpoint of another program: a file that is missing or too
// short, or one that was changed just now. "" if there is none.
std::string ProblemOf(const CheckpointSource& source);

// Throws kBadInput unless the checkpoint is complete. Of one of dslaunch, reads every byte.
void RequireWhole(const CheckpointSource& source);

// Prints a line on stdout; names of folders, files and tensors in it may come from others.
void PrintNames(const std::string& line);

// Returns a text that differs if another path was opened or a file has changed since: sizes and
// times of all files.
std::string IdentityOf(const CheckpointSource& source);

}  // namespace dslaunch
