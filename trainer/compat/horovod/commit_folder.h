// The files of commits of elastic::State.
//
//   FOLDER/node_K/commit.GENERATION.NUMBER.BYTES.CRC32.safetensors   the last commit of node K
//   FOLDER/node_K/unfinished                                         one that is being written
//
// A file gets the first name once it is whole on the disk; the name has the size and checksum that
// its content must have. The folder may belong to one node or be shared by all: a node writes into
// its own part and reads all parts, because its position among the nodes may change with each
// attempt.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "trainer/base/durable_file.h"

namespace dslaunch::horovod {

// Later commits are greater. Each Sync begins a generation above all that any rank knows. So
// commits of a lost node, which belong to steps that the job has abandoned, are older than later
// commits of the others.
struct CommitId {
  int64_t generation = 0;
  int64_t number = 0;  // number of the commit in its generation
  auto operator<=>(const CommitId&) const = default;
};

// The id {} means that there is no commit.
struct SavedCommit {
  CommitId id;
  std::vector<NamedTensor> values;  // dense, contiguous, on the CPU
};

// "3.12", for messages.
std::string ToText(const CommitId& id);

// Returns the lowest rank with the newest commit. Precondition: `by_rank` is not empty. Pure.
int NewestRank(const std::vector<CommitId>& by_rank);

// Returns the name of a commit's file, and the content of such a name; nullopt for any other name.
// Pure.
std::string CommitFileName(const CommitId& id, const FileSum& sum);
struct CommitFileInfo {
  CommitId id;
  FileSum sum;
};
std::optional<CommitFileInfo> ParseCommitFileName(std::string_view name);

// Not thread-safe.
class CommitFolder {
 public:
  CommitFolder(std::string folder, int node_rank);

  // Writes a commit in place of the node's last one, and returns once it is on the disk. Throws
  // TrainError kIo; the last one is then still there.
  void Write(const SavedCommit& commit) const;
  // Returns the newest intact commit of all nodes; nullopt if there is none. Prints a line on
  // stderr for each newer one that is damaged or cannot be read.
  std::optional<SavedCommit> ReadNewest() const;

 private:
  const std::string folder_;
  const std::string own_;  // this node's folder
};

}  // namespace dslaunch::horovod
