// Lists the checkpoints of a folder, for people and programs. Pure except for FindCheckpoints.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

struct ListedCheckpoint {
  std::string tag;
  std::string problem;  // empty if no problem was found
  bool latest = false;  // whether the file `latest` names it
  Manifest manifest;    // empty if it cannot be read
  std::string program = "dslaunch";
  // For checkpoints of other programs, as in ForeignCheckpoint:
  std::map<std::string, std::string> aliases = {};
  std::vector<std::string> notes = {};
  std::vector<std::string> missing = {};
};

// Returns the oldest save first, checkpoints without a readable manifest last. Reads manifests and
// the sizes of files. Throws kBadInput if `path` is not a folder.
std::vector<ListedCheckpoint> FindCheckpoints(const std::string& path);

// Return text for people. Dates are local time, and control characters of names are left out.
// A table with a header, each line ended by '\n'; "" for an empty list:
std::string CheckpointTable(const std::vector<ListedCheckpoint>& list);
// Lines about one checkpoint of another program:
std::string CheckpointFacts(const ListedCheckpoint& one);

// Returns a JSON list of objects, in ASCII.
std::string CheckpointsJson(const std::vector<ListedCheckpoint>& list);

// Returns the size of all files of the manifest together.
int64_t BytesOf(const Manifest& manifest);

}  // namespace dslaunch
