// The folder of --checkpoint_dir: one folder per checkpoint, named by its tag ("step_000120"), the
// file `latest`, which holds the tag of the last one, as in DeepSpeed, and of the job that saves
// into it, or was the last one to do so, the file lease.json (folder_lease.h). A checkpoint is
// written as tmp-... and renamed to its tag when all of it is on the disk, so a folder with a tag
// is always complete.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/checkpoint/folder_lease.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {

// --resume.
struct ResumeRequest {
  enum class Kind { kAuto, kTag, kNone };
  Kind kind = Kind::kAuto;
  std::string tag;         // for kTag
  std::string job_id;      // of this job
  bool restarted = false;  // this job's ranks ran before, and their steps must not be lost
  // The Manifest::started_by of runs that the same command has started; empty: it says nothing of
  // how a run starts.
  std::string started_by = {};
};

struct Checkpoint {
  std::string folder;  // path of its own folder
  std::string tag;
  Manifest manifest;
};

struct ResumeDecision {
  enum class Kind { kResume, kFresh, kRefused };
  Kind kind = Kind::kFresh;
  std::optional<Checkpoint> checkpoint;  // for kResume
  std::string reason;                    // one line for people: the choice, and what was skipped
};

// Which checkpoints to try, the best first. `whole` are those with a readable manifest. First come
// those of a run that the same command has started: it goes on. Then, by --resume:
//   auto   the newest first
//   TAG    that one; in a restarted job first those that the job itself saved
//   none   none; in a restarted job those that the job itself saved
// Pure.
std::vector<Checkpoint> OrderCandidates(const ResumeRequest& request,
                                        std::vector<Checkpoint> whole);

// "step_000120"
std::string TagOf(int64_t step);

// What a run appends to its tags so that none of them is that of another run's checkpoint: empty,
// or "-" and the beginning of `run_id`. `resumed` is the checkpoint that the run goes on from; null
// at its start. Pure.
std::string TagSuffix(const std::vector<Checkpoint>& whole, const std::string& run_id,
                      const Checkpoint* resumed);

// Whether `tag` can be the name of a checkpoint: a file name that has no other meaning here.
bool IsTag(const std::string& tag);

// Saving is for one process at a time, choosing for any number of them. Errors are TrainError: kIo
// if the disk fails, kBadInput if content is wrong.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Makes the folder, if need be, and checks that it can be used.
  void Make() const;

  // From now on Begin, Commit, Settle and RemoveLeftovers fail, and change nothing more, unless
  // this process still holds the lease of the folder.
  void UseLease(std::shared_ptr<FolderLease> lease) { lease_ = std::move(lease); }
  // As FolderLease::Confirm; nothing without a lease.
  void ConfirmLease() const {
    if (lease_) lease_->Confirm();
  }

  // Removes what interrupted saves have left, and gives a checkpoint its tag back if the save that
  // should have replaced it was interrupted. Returns the names of what it removed. Only for the
  // holder of the lease, while it does not save.
  std::vector<std::string> RemoveLeftovers() const;

  // The content by tag; only the manifests have been read.
  struct Damaged {
    std::string tag;
    std::string problem;
  };
  struct Listing {
    std::vector<Checkpoint> whole;
    std::vector<Damaged> damaged;
  };
  Listing List() const;
  std::string ReadLatest() const;  // the tag; empty if there is none

  // Whether what would be resumed is whole: empty, or the damage. It is called for each candidate,
  // until one is whole, or at last for a decision without a checkpoint. May throw.
  using Judge = std::function<std::string(const ResumeDecision& decision)>;

  // Does not throw for damage: the decision is kRefused if going on would silently throw training
  // away.
  ResumeDecision Choose(const ResumeRequest& request, const Listing& listing, const Judge& judge);

  // The same for a checkpoint that is asked for by its tag; with an empty tag for the one that
  // `latest` names, or for the newest if `latest` names none or a damaged one. kRefused if there
  // are checkpoints and none of these is whole, or if a tag was given; kFresh if there are none.
  ResumeDecision ChooseTag(const std::string& tag, const Listing& listing, const Judge& judge);

  // The same for a process that decides alone: reads every byte of what it chooses.
  ResumeDecision Choose(const ResumeRequest& request);
  ResumeDecision ChooseTag(const std::string& tag);

  // The folder for the files of a checkpoint that is being written. `save` names this save among
  // those of all attempts. All ranks compute the same path from the same arguments. Pure.
  std::string BegunPath(const std::string& tag, const std::string& save) const;
  // Makes it.
  void Begin(const std::string& begun) const;
  // Removes what is not to become a checkpoint. Does not throw: RemoveLeftovers removes the rest.
  void Abandon(const std::string& begun) const;

  // Call it when all files are written and synced. Checks that all files of the manifest are in
  // `begun`, gives the checkpoint its serial number and its tag. A checkpoint that had the tag
  // before is replaced; if this throws, it is still there.
  void Commit(const std::string& begun, const std::string& tag, Manifest manifest);
  // Call it then: `latest` gets the tag. Removes the checkpoints of the run that are older than the
  // last `keep` whole ones: those that this object has saved or chosen.
  void Settle(const std::string& tag, const std::string& run_id, int64_t keep) const;

 private:
  // The first of `candidates` that is whole, else without(what was skipped).
  ResumeDecision FirstWhole(
      const std::vector<Checkpoint>& candidates, std::vector<std::string> skipped,
      const std::string& verb, const Judge& judge,
      const std::function<ResumeDecision(const std::vector<std::string>& skipped)>& without);
  // If `name` is a replaced checkpoint whose tag is free: gives it the tag and returns true.
  bool PutBack(const std::string& name) const;
  void Publish(const std::string& begun, const std::string& tag) const;
  void WriteLatest(const std::string& tag) const;
  void Prune(const std::string& run_id, int64_t keep) const;
  void Remove(const std::string& folder) const;
  std::string TemporaryName(const std::string& tag) const;

  std::string path_;
  std::set<int64_t> known_whole_;  // serial numbers
  std::shared_ptr<FolderLease> lease_;
};

// The checkpoint whose files are in `folder`. Reads only the manifest. Throws kBadInput, naming the
// file.
Checkpoint ReadCheckpoint(const std::string& folder);

// Throws kBadInput, naming the file and, if known, the tensor, if anything differs from the
// manifest. Reads every byte.
void VerifyCheckpoint(const Checkpoint& checkpoint);

// The same for all files: one sentence for each damaged one.
std::vector<std::string> FindDamage(const Checkpoint& checkpoint);

// The same from the sizes of the files alone.
std::vector<std::string> FindMissing(const Checkpoint& checkpoint);

// The parts of a verification.

std::string PathOf(const Checkpoint& checkpoint, const FileRecord& record);

// What is said of a file whose bytes are not those that were written.
std::string WrongChecksum(const Checkpoint& checkpoint, const FileRecord& record);

// The CRC-32 of the bytes [begin, end) of a file. Throws kBadInput if its size is not the recorded
// one; as SumPart otherwise.
uint32_t CheckedPartSum(const Checkpoint& checkpoint, const FileRecord& record, uint64_t begin,
                        uint64_t end);

// Which slices of tensors the manifest says are in which file. `checkpoint` must outlive it.
class CheckpointSlices {
 public:
  explicit CheckpointSlices(const Checkpoint& checkpoint);

  // Throws kBadInput if `file`, which has this name in the checkpoint, lacks one of its slices.
  void Check(const std::string& name, const SafetensorsFile& file) const;

 private:
  struct Slice {
    const TensorRecord* tensor;
    const TensorSlice* slice;
  };
  const Checkpoint& checkpoint_;
  std::map<std::string, std::vector<Slice>> by_file_;
};

}  // namespace dslaunch
