// Lists the checkpoints of a folder, for people and programs. Pure except for FindCheckpoints.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

struct ListedCheckpoint {
  std::string tag;
  std::string problem;  // empty: none was found
  bool latest = false;  // the file `latest` names it
  Manifest manifest;    // empty where it cannot be read
};

// The oldest save first, those without a readable manifest last. Reads manifests and the sizes of
// files. Throws kBadInput if `path` is not a folder.
std::vector<ListedCheckpoint> FindCheckpoints(const std::string& path);

// A table with a header, each line ended by '\n'; empty for an empty list. Dates are local time.
// Control characters of names are left out.
std::string CheckpointTable(const std::vector<ListedCheckpoint>& list);

// A JSON list of objects, in ASCII.
std::string CheckpointsJson(const std::vector<ListedCheckpoint>& list);

// The size of all files of the manifest.
int64_t BytesOf(const Manifest& manifest);

}  // namespace dslaunch
