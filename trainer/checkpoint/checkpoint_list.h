// Lists the checkpoints of a folder, for people and programs. Only FindCheckpoints performs I/O.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

struct ListedCheckpoint {
  std::string tag;
  std::string problem;  // description of the damage; empty if no problem was found
  bool latest = false;  // true if the file `latest` names this checkpoint
  Manifest manifest;    // empty if the manifest cannot be read
  std::string program = "dslaunch";
  // The members of ForeignCheckpoint with the same names; empty for checkpoints of dslaunch.
  std::map<std::string, std::string> aliases = {};
  std::vector<std::string> notes = {};
  std::vector<std::string> missing = {};
};

// Returns the checkpoints in `path`, the oldest save first, and checkpoints without a readable
// manifest last. Reads only manifests and the sizes of files. Throws kBadInput if `path` is not a
// folder.
std::vector<ListedCheckpoint> FindCheckpoints(const std::string& path);

// Returns a table for people, with a header and '\n' after each line; "" for an empty list. Dates
// are local time, and control characters in names are removed.
std::string CheckpointTable(const std::vector<ListedCheckpoint>& list);
// Returns lines of text that describe one checkpoint of another program.
std::string CheckpointFacts(const ListedCheckpoint& one);

// Returns the checkpoints as a JSON list of objects, in ASCII.
std::string CheckpointsJson(const std::vector<ListedCheckpoint>& list);

// Returns the total size of the manifest's files in bytes.
int64_t BytesOf(const Manifest& manifest);

}  // namespace dslaunch
