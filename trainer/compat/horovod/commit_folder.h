// Writes and reads the files of elastic::State's commits:
//
//   FOLDER/node_K/commit.GENERATION.NUMBER.BYTES.CRC32.safetensors   the last commit of node K
//   FOLDER/node_K/unfinished                                         a commit being written
//
// A file gets the first name when its content is complete on disk. The name contains the size and
// checksum that the content must have. The folder may be on one node or shared by all nodes. A node
// writes only into its own subfolder but reads all subfolders, because its position among the nodes
// may change with each attempt.
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

// Identifies a commit; a later commit is greater. Each Sync begins a generation that is greater
// than all generations on any rank. Commits of a lost node, whose steps the job has abandoned, are
// therefore less than later commits of the other nodes.
struct CommitId {
  int64_t generation = 0;
  int64_t number = 0;  // number of the commit within its generation
  auto operator<=>(const CommitId&) const = default;
};

// A commit with its values. If `id` equals {}, there is no commit.
struct SavedCommit {
  CommitId id;
  std::vector<NamedTensor> values;  // dense and contiguous tensors on the CPU, by name
};

// Returns the text of an id for messages, such as "3.12".
std::string ToText(const CommitId& id);

// Returns the lowest rank that has the newest commit. `by_rank` has each rank's commit and must not
// be empty. Pure function.
int NewestRank(const std::vector<CommitId>& by_rank);

// Returns the name of a commit's file. Pure function.
std::string CommitFileName(const CommitId& id, const FileSum& sum);
// The content of a commit's file name.
struct CommitFileInfo {
  CommitId id;
  FileSum sum;
};
// Parses a name that CommitFileName returned; returns nullopt for any other name. Pure function.
std::optional<CommitFileInfo> ParseCommitFileName(std::string_view name);

// A folder with the commits of all nodes, as seen by one node. Not thread-safe.
class CommitFolder {
 public:
  CommitFolder(std::string folder, int node_rank);

  // Replaces this node's last commit by `commit`, and waits until it is on disk. Throws TrainError
  // kIo if that fails; the previous commit then still exists.
  void Write(const SavedCommit& commit) const;
  // Returns the newest intact commit of all nodes; nullopt if there is none. Prints a line on
  // stderr for each newer commit that is damaged or cannot be read.
  std::optional<SavedCommit> ReadNewest() const;

 private:
  const std::string folder_;
  const std::string own_;  // path of this node's subfolder
};

}  // namespace dslaunch::horovod
