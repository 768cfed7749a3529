// What is in a folder of checkpoints, for people and programs. Pure but for FindCheckpoints.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

struct ListedCheckpoint {
  std::string tag;
  std::string problem;  // empty: nothing is missing as far as has been looked
  bool latest = false;  // the file `latest` names it
  Manifest manifest;    // empty where it cannot be read
};

// The oldest save first, those without a readable manifest at the end. Looks at manifests and the
// sizes of files. Throws kBadInput where `path` is not a folder.
std::vector<ListedCheckpoint> FindCheckpoints(const std::string& path);

// Columns, one line each, ended by '\n'; without a header where there is none. Dates are local
// time.
std::string CheckpointTable(const std::vector<ListedCheckpoint>& list);

// A JSON list of objects.
std::string CheckpointsJson(const std::vector<ListedCheckpoint>& list);

// Of all files that the manifest names.
int64_t BytesOf(const Manifest& manifest);

}  // namespace dslaunch
