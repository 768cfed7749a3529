// Receives the files and folders that the front end copies to a node (--copy). Requests only the
// content that the node does not have.
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

// The stream of one Copy call. The functions block, but no longer than the other end may be silent.
struct CopyPeer {
  std::function<std::optional<pb::CopyInput>()> read;  // returns nullopt once the stream has ended
  std::function<bool(pb::CopyOutput)> write;           // returns false once the stream has ended
};

// Returns the folder for copies on this node. It is next to the agent's file if that was copied to
// the node, otherwise in the user's cache folder. Fails with kIo if the account has no home.
Result<std::string> CopiesFolder();

// Returns the folder of the set of copies that `key` names.
inline std::string CopyPlace(const std::string& copies, const std::string& key) {
  return copies + "/" + key;
}

// Returns the program with the changes that its copies require: its folder, its executable, and
// DSLAUNCH_COPY_DIR. Fails with kBadInput if the copies do not exist.
Result<pb::Program> WithCopies(pb::Program program, const pb::Copies& copies);

// Makes `folder`/KEY match the list of one Copy call. Blocks, so it needs a separate thread.
//
// A file appears as a whole or not at all. If a copy is interrupted, the received part of a file is
// kept in `folder`/.part-KEY, and the next copy continues after it.
//
// Nodes may share the folder. The folder .lock-KEY is the lock, because mkdir is atomic over NFS. A
// lock is taken over if its owner, a process of this machine, has ended, or if the owner has shown
// no sign of life for 20 s. Sets that no job has used for 90 days are removed.
//
// An existing file is accepted by its size and times alone only if it has not changed since the
// copy was complete. To check that, its change time, which no program can set, is compared with the
// time of the file .done-KEY on the same file system.
class CopyReceiver {
 public:
  CopyReceiver(std::string folder, CopyPeer peer);
  ~CopyReceiver();
  CopyReceiver(const CopyReceiver&) = delete;

  // Makes the copy and returns the last output: `done` or `failure`. The message of a failure does
  // not name the node.
  pb::CopyOutput Run();

 private:
  Result<pb::CopyDone> Receive();
  Result<void> ReadList();
  Result<void> CheckEntry(const pb::CopyEntry& entry);
  bool IsThere(const pb::CopyEntry& entry) const;
  bool IsUnchanged(const struct stat& status) const;
  bool IsComplete() const;
  Result<void> Lock();
  // Sends a sign of life every second, to the front end and to processes that wait for the lock.
  Result<void> ShowLife();
  void Unlock();
  void RemoveOld() const;
  // Creates all entries except files whose content must be received. Adds these files to `wanted`.
  Result<void> MakeWhatIsKnown(std::vector<pb::CopyPart>& wanted);
  Result<void> MakeFolder(const pb::CopyEntry& entry) const;
  Result<void> MakeLink(const pb::CopyEntry& entry, size_t index) const;
  Result<void> MakeFile(const pb::CopyEntry& entry, size_t index,
                        std::vector<pb::CopyPart>& wanted);
  // Adds up to `size` bytes of the file to `sum`, in parts, and sends signs of life in between.
  // Returns the number of bytes added.
  Result<uint64_t> Hash(int fd, uint64_t size, Sha256& sum);
  bool HasContent(const std::string& path, const pb::CopyEntry& entry);
  Result<void> CheckSpace(const std::vector<pb::CopyPart>& wanted) const;
  // Fetches the parts. Returns the parts that must be fetched again as whole files, because the
  // part that existed and the part that arrived together do not give the listed content.
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
  // Time when the copies were complete; nullopt if unknown.
  std::optional<timespec> done_at_;
  std::string owner_;  // this process's file in the lock; empty without the lock
  Deadline next_sign_ = Deadline::After(milliseconds(0));
  std::vector<pb::CopyEntry> entries_;
  std::set<std::string> folders_;  // paths of the folders in the list
  uint64_t received_bytes_ = 0;
};

}  // namespace dslaunch
