// Manages the folder of --checkpoint_dir. The folder contains a folder for each checkpoint, named
// by the tag ("step_000120"); the file `latest`, which has the tag of the last checkpoint, as in
// DeepSpeed; and the file lease.json of the last job that saved into the folder (folder_lease.h). A
// checkpoint is written as tmp-... and renamed to its tag when all its files are on the disk, so a
// folder with a tag is always complete.
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

// A request for a checkpoint to resume from, as in the option --resume.
struct ResumeRequest {
  enum class Kind { kAuto, kTag, kNone };
  Kind kind = Kind::kAuto;
  std::string tag;     // tag of the checkpoint to resume, for kTag
  std::string job_id;  // id of the job that resumes
  // True if ranks of this job ran before, so that their steps must not be lost.
  bool restarted = false;
  // Manifest::started_by of runs that the same command starts; empty if no option of the command
  // affects the start of a run.
  std::string started_by = {};
};

// Reads a checkpoint of another program.
class SliceReader {
 public:
  virtual ~SliceReader() = default;
  // Reads the elements that `stored`, a slice of `tensor`, and `wanted` have in common. `out` has
  // room for all elements of `wanted`, in their order and the tensor's dtype; other elements are
  // not changed. Throws TrainError kBadInput or kIo, naming the file. Not thread-safe.
  virtual void Read(const TensorRecord& tensor, const TensorSlice& stored, const Shard& wanted,
                    void* out) const = 0;
};

struct Checkpoint {
  std::string folder;  // path of the folder with the checkpoint's files
  std::string tag;
  Manifest manifest;
  // Null if the files in `folder` are safetensors files.
  std::shared_ptr<const SliceReader> reader = nullptr;
};

struct ResumeDecision {
  enum class Kind { kResume, kFresh, kRefused };
  Kind kind = Kind::kFresh;
  std::optional<Checkpoint> checkpoint;  // checkpoint to load if the decision is kResume
  std::string reason;  // one line for the user that states the choice and the skipped checkpoints
};

// Returns the checkpoints to try, the best first. `whole` has the checkpoints with a readable
// manifest. Checkpoints of a run that the same command started come first, because that run
// continues. The others depend on --resume:
//   auto   all, the newest first
//   TAG    the one with this tag; in a restarted job, before it those that the job itself saved
//   none   none; in a restarted job, those that the job itself saved
// Pure function.
std::vector<Checkpoint> OrderCandidates(const ResumeRequest& request,
                                        std::vector<Checkpoint> whole);

// Returns the tag of a checkpoint after `step`, such as "step_000120".
std::string TagOf(int64_t step);

// Returns the suffix that makes a run's tags differ from the tags of other runs in `whole`: "-" and
// the first characters of `run_id` if another run has saved a later step under a tag without a
// suffix, or if the tag of `resumed` has this suffix; otherwise "". `resumed` is the checkpoint
// from which the run continues; null if the run starts. Pure function.
std::string TagSuffix(const std::vector<Checkpoint>& whole, const std::string& run_id,
                      const Checkpoint* resumed);

// Returns whether `tag` can be the name of a checkpoint, which is a file name without another
// meaning in the folder.
bool IsTag(const std::string& tag);

// Saves and chooses checkpoints. Only one process at a time may save, but any number of processes
// may choose. Throws TrainError: kIo if the disk fails, kBadInput if content is wrong.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Creates the folder if it does not exist, and checks that the folder can be read and written.
  void Make() const;

  // Stores the folder's lease. Begin, Commit, Settle and RemoveLeftovers then fail, without
  // changing the folder, if this process no longer holds the lease.
  void UseLease(std::shared_ptr<FolderLease> lease) { lease_ = std::move(lease); }
  // Calls FolderLease::Confirm; does nothing without a lease.
  void ConfirmLease() const {
    if (lease_) lease_->Confirm();
  }

  // Removes the temporary folders and files of interrupted saves. Restores the tag of a checkpoint
  // if the save that was replacing it was interrupted. Returns the names of the removed folders and
  // files. Precondition: this process holds the lease and is not saving.
  std::vector<std::string> RemoveLeftovers() const;

  struct Damaged {
    std::string tag;
    std::string problem;
  };
  struct Listing {
    std::vector<Checkpoint> whole;
    std::vector<Damaged> damaged;
  };
  // Returns the checkpoints in the order of their tags. Reads only their manifests.
  Listing List() const;
  // Returns the tag in the file `latest`; empty if there is no such file.
  std::string ReadLatest() const;

  // Returns "" if the checkpoint of `decision` is whole, else a description of its damage. Choose
  // calls the judge for each candidate until one is whole. If none is whole, Choose calls it for
  // the decision without a checkpoint. If the judge throws, Choose passes on the exception.
  using Judge = std::function<std::string(const ResumeDecision& decision)>;

  // Returns the decision for `request`. Does not throw if checkpoints are damaged: the decision is
  // kRefused if any other decision would silently discard training.
  ResumeDecision Choose(const ResumeRequest& request, const Listing& listing, const Judge& judge);

  // Returns the decision for the checkpoint with this tag. An empty tag selects the checkpoint that
  // `latest` names, or the newest whole checkpoint if `latest` names none or a damaged one. The
  // decision is kFresh if the tag is empty and there is no checkpoint. Otherwise it is kRefused if
  // there is no such whole checkpoint.
  ResumeDecision ChooseTag(const std::string& tag, const Listing& listing, const Judge& judge);

  // Chooses a checkpoint in a process that decides without other ranks. Reads every byte of the
  // chosen checkpoint.
  ResumeDecision Choose(const ResumeRequest& request);
  ResumeDecision ChooseTag(const std::string& tag);

  // Returns the temporary folder of a checkpoint that is being written. `save` is unique among the
  // saves of all attempts. All ranks compute the same path from the same arguments. Pure function.
  std::string BegunPath(const std::string& tag, const std::string& save) const;
  // Creates the folder that BegunPath returned.
  void Begin(const std::string& begun) const;
  // Removes the folder of a failed save. Does not throw; RemoveLeftovers later removes any
  // remaining files.
  void Abandon(const std::string& begun) const;

  // Checks that all files of the manifest are in `begun`, and gives the checkpoint its serial
  // number and its tag. Replaces an earlier checkpoint with the tag; if Commit throws, the earlier
  // checkpoint is still intact. Precondition: all files are written and synced.
  void Commit(const std::string& begun, const std::string& tag, Manifest manifest);
  // Writes the tag into `latest` and removes old checkpoints of the run. Keeps the last `keep`
  // checkpoints that are known to be whole because this object has saved or chosen them, and all
  // that are newer. Precondition: Commit succeeded.
  void Settle(const std::string& tag, const std::string& run_id, int64_t keep) const;

 private:
  // Returns the decision for the first whole checkpoint in `candidates`. If none is whole, returns
  // the result of `without`, which gets the skipped checkpoints.
  ResumeDecision FirstWhole(
      const std::vector<Checkpoint>& candidates, std::vector<std::string> skipped,
      const std::string& verb, const Judge& judge,
      const std::function<ResumeDecision(const std::vector<std::string>& skipped)>& without);
  // Restores the tag of the folder `name` and returns true if it is a replaced checkpoint whose tag
  // is unused. Otherwise does nothing and returns false.
  bool PutBack(const std::string& name) const;
  void Publish(const std::string& begun, const std::string& tag) const;
  void WriteLatest(const std::string& tag) const;
  void Prune(const std::string& run_id, int64_t keep) const;
  void Remove(const std::string& folder) const;
  std::string TemporaryName(const std::string& tag) const;

  std::string path_;
  std::set<int64_t> known_whole_;  // serial numbers of checkpoints that are known to be whole
  std::shared_ptr<FolderLease> lease_;
};

// Returns the checkpoint whose files are in `folder`. Reads only the manifest. Throws kBadInput,
// naming the file.
Checkpoint ReadCheckpoint(const std::string& folder);

// Checks all files against the manifest, reading every byte. Throws kBadInput for a difference; the
// message names the file and, if known, the tensor.
void VerifyCheckpoint(const Checkpoint& checkpoint);

// Verifies all files like VerifyCheckpoint. Returns one sentence for each damaged file; empty if
// the checkpoint is whole.
std::vector<std::string> FindDamage(const Checkpoint& checkpoint);

// Returns one sentence for each file that is missing or has another size; empty if there is none.
// Does not read the files.
std::vector<std::string> FindMissing(const Checkpoint& checkpoint);

// Returns the path of a file of the checkpoint.

std::string PathOf(const Checkpoint& checkpoint, const FileRecord& record);

// Returns the message for a file whose bytes differ from its recorded checksum.
std::string WrongChecksum(const Checkpoint& checkpoint, const FileRecord& record);

// Returns the CRC-32 of the bytes [begin, end) of a file. Throws kBadInput if the file is missing
// or its size differs from its record, and kIo if it cannot be read.
uint32_t CheckedPartSum(const Checkpoint& checkpoint, const FileRecord& record, uint64_t begin,
                        uint64_t end);

// Checks files against the slices that the manifest lists for them. `checkpoint` must outlive this
// object.
class CheckpointSlices {
 public:
  explicit CheckpointSlices(const Checkpoint& checkpoint);

  // Throws kBadInput if `file`, which is named `name` in the checkpoint, lacks one of its slices.
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
