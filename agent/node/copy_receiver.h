// Files and folders that the front end copies to a node (--copy): what is there already, what is
// wanted, and what arrives.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/digest/sha256.h"
#include "base/error.h"
#include "proto/agent.pb.h"

namespace dslaunch {

// The stream of one Copy call. Both block, for as long as a node may be silent at most.
struct CopyPeer {
  std::function<std::optional<pb::CopyInput>()> read;  // nullopt: the stream is over
  std::function<bool(pb::CopyOutput)> write;           // false: likewise
};

// Where copies go on this node: beside the agent that was copied there, else in the user's cache
// folder.
Result<std::string> CopiesFolder();

// The folder of one set of copies.
inline std::string CopyPlace(const std::string& copies, const std::string& key) {
  return copies + "/" + key;
}

// The program as it runs with what was copied before: its folder, its executable, and
// DSLAUNCH_COPY_DIR. kBadInput: the copies are not there.
Result<pb::Program> WithCopies(pb::Program program, const pb::Copies& copies);

// Brings `folder`/KEY to what the list says, and keeps nothing else open. Blocks: a thread of its
// own. A file is there whole or not at all; what had arrived of one when a copy broke off is kept
// in `folder`/.part-KEY, and the next one goes on behind it. Nodes may share the folder: the folder
// .lock-KEY is the lock, since mkdir is atomic over NFS, as with the copy of the agent
// (ssh_bootstrap.cc). A lock is taken over when its owner, a process of this machine, has ended, or
// has shown no sign of life for 20 s. Sets that no job has used for 90 days are removed.
// An existing file is accepted by its size and times alone only if it has not changed since the
// copy was complete: its time of change, which no program can set, is compared with the time of
// change of the file .done-KEY on the same file system.
class CopyReceiver {
 public:
  CopyReceiver(std::string folder, CopyPeer peer);
  ~CopyReceiver();
  CopyReceiver(const CopyReceiver&) = delete;

  // The last output. The failure does not name the node.
  pb::CopyOutput Run();

 private:
  Result<pb::CopyDone> Receive();
  Result<void> ReadList();
  Result<void> CheckEntry(const pb::CopyEntry& entry);
  bool IsThere(const pb::CopyEntry& entry) const;
  bool IsUnchanged(const struct stat& status) const;
  bool IsComplete() const;
  Result<void> Lock();
  // Each second, to the front end and to those who wait for the lock.
  Result<void> ShowLife();
  void Unlock();
  void RemoveOld() const;
  // Makes all but what must arrive, which is added to `wanted`.
  Result<void> MakeWhatIsKnown(std::vector<pb::CopyPart>& wanted);
  Result<void> MakeFolder(const pb::CopyEntry& entry) const;
  Result<void> MakeLink(const pb::CopyEntry& entry, size_t index) const;
  Result<void> MakeFile(const pb::CopyEntry& entry, size_t index,
                        std::vector<pb::CopyPart>& wanted);
  // Calls AddFromFile in parts and reports signs of life meanwhile.
  Result<uint64_t> Hash(int fd, uint64_t size, Sha256& sum);
  bool HasContent(const std::string& path, const pb::CopyEntry& entry);
  Result<void> CheckSpace(const std::vector<pb::CopyPart>& wanted) const;
  // Returns the parts to fetch again, each as a whole file: some of it was there, and together with
  // what arrived it is not what the list says.
  Result<std::vector<pb::CopyPart>> Fetch(const std::vector<pb::CopyPart>& parts);
  Result<bool> FetchFile(const pb::CopyPart& part);
  Result<void> Install(const pb::CopyEntry& entry, size_t index) const;
  Result<void> FinishPlace();
  Result<void> StampDone();
  void ReadStamp();

  std::string PathOf(const pb::CopyEntry& entry) const { return place_ + "/" + entry.path(); }
  std::string PartOf(size_t index) const { return parts_ + "/" + std::to_string(index); }

  const std::string folder_;
  const CopyPeer peer_;
  std::string place_;
  std::string parts_;
  std::string lock_;
  std::string done_;
  std::optional<timespec> done_at_;  // when the copies were complete; nullopt: not known
  std::string owner_;                // path of our file in the lock; empty if the lock is not ours
  Deadline next_sign_ = Deadline::After(milliseconds(0));
  std::vector<pb::CopyEntry> entries_;
  std::set<std::string> folders_;  // folders of the list
  uint64_t received_bytes_ = 0;
};

}  // namespace dslaunch
