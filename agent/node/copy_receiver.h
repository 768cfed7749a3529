// Receives the files and folders that the front end copies to a node (--copy). Requests only what
// is missing.
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

// The stream of one Copy call. Both functions block, but no longer than a node may be silent.
struct CopyPeer {
  std::function<std::optional<pb::CopyInput>()> read;  // nullopt: the stream has ended
  std::function<bool(pb::CopyOutput)> write;           // false: the stream has ended
};

// Returns the folder for copies on this node: beside the agent if it was copied there, else in the
// user's cache folder.
Result<std::string> CopiesFolder();

// Returns the folder of one set of copies.
inline std::string CopyPlace(const std::string& copies, const std::string& key) {
  return copies + "/" + key;
}

// Returns the program with the changes that earlier copies require: its folder, its executable, and
// DSLAUNCH_COPY_DIR. Fails with kBadInput if the copies do not exist.
Result<pb::Program> WithCopies(pb::Program program, const pb::Copies& copies);

// Makes `folder`/KEY match the list. Blocks, so it needs a thread of its own. A file appears as a
// whole or not at all. If a copy breaks off, the part of a file that has arrived is kept in
// `folder`/.part-KEY, and the next copy continues after it. Nodes may share the folder. The folder
// .lock-KEY is the lock, because mkdir is atomic over NFS, as for the copy of the agent
// (ssh_bootstrap.cc). A lock is taken over if its owner, a process of this machine, has ended, or
// if the owner has shown no sign of life for 20 s. Sets that no job has used for 90 days are
// removed. An existing file is accepted by its size and times alone only if it has not changed
// since the copy was complete: its change time, which no program can set, is compared with the
// change time of the file .done-KEY on the same file system.
class CopyReceiver {
 public:
  CopyReceiver(std::string folder, CopyPeer peer);
  ~CopyReceiver();
  CopyReceiver(const CopyReceiver&) = delete;

  // Returns the last output. A failure does not name the node.
  pb::CopyOutput Run();

 private:
  Result<pb::CopyDone> Receive();
  Result<void> ReadList();
  Result<void> CheckEntry(const pb::CopyEntry& entry);
  bool IsThere(const pb::CopyEntry& entry) const;
  bool IsUnchanged(const struct stat& status) const;
  bool IsComplete() const;
  Result<void> Lock();
  // Reports a sign of life each second, to the front end and to processes that wait for the lock.
  Result<void> ShowLife();
  void Unlock();
  void RemoveOld() const;
  // Makes everything except the content that must arrive, which is added to `wanted`.
  Result<void> MakeWhatIsKnown(std::vector<pb::CopyPart>& wanted);
  Result<void> MakeFolder(const pb::CopyEntry& entry) const;
  Result<void> MakeLink(const pb::CopyEntry& entry, size_t index) const;
  Result<void> MakeFile(const pb::CopyEntry& entry, size_t index,
                        std::vector<pb::CopyPart>& wanted);
  // Calls AddFromFile in parts and reports signs of life meanwhile.
  Result<uint64_t> Hash(int fd, uint64_t size, Sha256& sum);
  bool HasContent(const std::string& path, const pb::CopyEntry& entry);
  Result<void> CheckSpace(const std::vector<pb::CopyPart>& wanted) const;
  // Fetches the parts. Returns those that must be fetched again as whole files, because the part
  // that existed and the part that arrived do not give the listed content.
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
  std::string owner_;  // path of this process's file in the lock; empty without the lock
  Deadline next_sign_ = Deadline::After(milliseconds(0));
  std::vector<pb::CopyEntry> entries_;
  std::set<std::string> folders_;  // folders in the list
  uint64_t received_bytes_ = 0;
};

}  // namespace dslaunch
