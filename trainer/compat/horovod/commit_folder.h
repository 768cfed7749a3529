// The files of elastic::State's commits.
//
//   FOLDER/node_K/commit.GENERATION.NUMBER.BYTES.CRC32.safetensors   the last commit of node K
//   FOLDER/node_K/unfinished                                         one that is being written
//
// A file has the first name once it is whole on the disk, and that name says what it must contain
// to be believed. The folder may be that of one node or shared by all: a node writes into its own
// part and reads all, as its position among the nodes changes from one attempt to the next.
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

// Later commits are greater. Each Sync begins a generation, above all that any rank then knew: what
// a lost node committed meanwhile, on a path that the job left, is older than what the others
// commit afterwards.
struct CommitId {
  int64_t generation = 0;
  int64_t number = 0;  // in its generation
  auto operator<=>(const CommitId&) const = default;
};

// Without a commit the id is {}.
struct SavedCommit {
  CommitId id;
  std::vector<NamedTensor> values;  // dense, contiguous, on the CPU
};

// "3.12", for messages.
std::string ToText(const CommitId& id);

// The rank with the newest commit, the lowest of these; `by_rank` is not empty. Pure.
int NewestRank(const std::vector<CommitId>& by_rank);

// The name of a commit's file, and what such a name says; nullopt for any other name. Pure.
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

  // Returns once it is on the disk, in place of the node's last one. TrainError kIo, and then the
  // last one still is there.
  void Write(const SavedCommit& commit) const;
  // The newest that is whole, of all nodes; nullopt: there is none. A line on stderr for each newer
  // one that is damaged or cannot be read.
  std::optional<SavedCommit> ReadNewest() const;

 private:
  const std::string folder_;
  const std::string own_;  // of this node
};

}  // namespace dslaunch::horovod
