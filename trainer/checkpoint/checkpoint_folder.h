// The folder of --checkpoint_dir. It has one folder for each checkpoint, named by its tag
// ("step_000120"); the file `latest`, which holds the tag of the last one, as in DeepSpeed; and the
// file lease.json of the job that saves into it or was the last to do so (folder_lease.h). A
// checkpoint is written as tmp-... and renamed to its tag when all of it is on the disk, so a
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

// The choice that --resume makes.
struct ResumeRequest {
  enum class Kind { kAuto, kTag, kNone };
  Kind kind = Kind::kAuto;
  std::string tag;         // tag to resume, with kTag
  std::string job_id;      // this job's id
  bool restarted = false;  // this job's ranks ran before, and their steps must not be lost
  // Manifest::started_by of the runs that this command starts; empty if none of its options
  // concerns the start of a run.
  std::string started_by = {};
};

// Reads a checkpoint of another program.
class SliceReader {
 public:
  virtual ~SliceReader() = default;
  // Reads the elements that `stored`, a slice of `tensor`, and `wanted` have in common. `out` has
  // room for all of `wanted` in the tensor's dtype, in its order; other elements are not changed.
  // Throws kBadInput and kIo, naming the file. One thread at a time.
  virtual void Read(const TensorRecord& tensor, const TensorSlice& stored, const Shard& wanted,
                    void* out) const = 0;
};

struct Checkpoint {
  std::string folder;  // the path of the folder with its files
  std::string tag;
  Manifest manifest;
  std::shared_ptr<const SliceReader> reader = nullptr;  // null for safetensors files in `folder`
};

struct ResumeDecision {
  enum class Kind { kResume, kFresh, kRefused };
  Kind kind = Kind::kFresh;
  std::optional<Checkpoint> checkpoint;  // checkpoint to load, with kResume
  std::string reason;  // one line for the user: the choice, and the checkpoints that were skipped
};

// Returns the checkpoints to try, the best first. `whole` has those with a readable manifest. The
// first are checkpoints of a run that the same command started, which continues. The others depend
// on --resume:
//   auto   all, the newest first
//   TAG    the one with this tag; in a restarted job, before it those that the job itself saved
//   none   none; in a restarted job, those that the job itself saved
// Pure.
std::vector<Checkpoint> OrderCandidates(const ResumeRequest& request,
                                        std::vector<Checkpoint> whole);

// "step_000120"
std::string TagOf(int64_t step);

// Returns the suffix of a run's tags that makes them differ from the tags of other runs: "", or "-"
// and the beginning of `run_id`. `resumed` is the checkpoint from which the run continues; null at
// its start. Pure.
std::string TagSuffix(const std::vector<Checkpoint>& whole, const std::string& run_id,
                      const Checkpoint* resumed);

// Whether `tag` can be the name of a checkpoint: a file name without another meaning in the folder.
bool IsTag(const std::string& tag);

// One process at a time may save; any number of them may choose. Errors are TrainError: kIo if the
// disk fails, kBadInput if content is wrong.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Makes the folder if it does not exist, and checks that it can be read and written.
  void Make() const;

  // Makes Begin, Commit, Settle and RemoveLeftovers fail, without a change to the folder, once this
  // process no longer holds the folder's lease.
  void UseLease(std::shared_ptr<FolderLease> lease) { lease_ = std::move(lease); }
  // Calls FolderLease::Confirm; does nothing without a lease.
  void ConfirmLease() const {
    if (lease_) lease_->Confirm();
  }

  // Removes the temporary folders and files of interrupted saves, and gives a checkpoint its tag
  // back if the save that should have replaced it was interrupted. Returns the names of all that it
  // removed. Precondition: this process holds the lease and does not save.
  std::vector<std::string> RemoveLeftovers() const;

  struct Damaged {
    std::string tag;
    std::string problem;
  };
  struct Listing {
    std::vector<Checkpoint> whole;
    std::vector<Damaged> damaged;
  };
  // Returns the checkpoints by tag. Reads only their manifests.
  Listing List() const;
  std::string ReadLatest() const;  // the tag in `latest`; empty if there is none

  // Returns "" if the checkpoint of `decision` is whole, else its damage. Choose calls it for each
  // candidate until one is whole, and if none is, for the decision without a checkpoint. May throw.
  using Judge = std::function<std::string(const ResumeDecision& decision)>;

  // Returns the decision for `request`. Does not throw for damage: the decision is kRefused if
  // another one would silently discard training.
  ResumeDecision Choose(const ResumeRequest& request, const Listing& listing, const Judge& judge);

  // Returns the decision for the checkpoint with this tag. If the tag is empty, that is the one
  // that `latest` names, or the newest if `latest` names none or a damaged one. kFresh if the tag
  // is empty and there is no checkpoint; kRefused if there is no whole one otherwise.
  ResumeDecision ChooseTag(const std::string& tag, const Listing& listing, const Judge& judge);

  // Like the functions above, for a process that decides alone. They read every byte of the chosen
  // checkpoint.
  ResumeDecision Choose(const ResumeRequest& request);
  ResumeDecision ChooseTag(const std::string& tag);

  // Returns the temporary folder of a checkpoint that is being written. `save` is unique among the
  // saves of all attempts. All ranks compute the same path from the same arguments. Pure.
  std::string BegunPath(const std::string& tag, const std::string& save) const;
  // Makes the folder that BegunPath returned.
  void Begin(const std::string& begun) const;
  // Removes the folder of a failed save. Does not throw: RemoveLeftovers removes the rest.
  void Abandon(const std::string& begun) const;

  // Checks that all files of the manifest are in `begun`, and gives the checkpoint its serial
  // number and its tag. An earlier checkpoint with the tag is replaced; if this throws, it is still
  // there. Precondition: all files are written and synced.
  void Commit(const std::string& begun, const std::string& tag, Manifest manifest);
  // Writes the tag into `latest` and removes the checkpoints of the run that are older than the
  // last `keep` whole ones (those that this object has saved or chosen). Precondition: Commit
  // succeeded.
  void Settle(const std::string& tag, const std::string& run_id, int64_t keep) const;

 private:
  // Returns the first of `candidates` that is whole, else without(the skipped ones).
  ResumeDecision FirstWhole(
      const std::vector<Checkpoint>& candidates, std::vector<std::string> skipped,
      const std::string& verb, const Judge& judge,
      const std::function<ResumeDecision(const std::vector<std::string>& skipped)>& without);
  // If `name` is a replaced checkpoint whose tag is unused, gives it the tag and returns true.
  bool PutBack(const std::string& name) const;
  void Publish(const std::string& begun, const std::string& tag) const;
  void WriteLatest(const std::string& tag) const;
  void Prune(const std::string& run_id, int64_t keep) const;
  void Remove(const std::string& folder) const;
  std::string TemporaryName(const std::string& tag) const;

  std::string path_;
  std::set<int64_t> known_whole_;  // serial numbers of checkpoints known to be whole
  std::shared_ptr<FolderLease> lease_;
};

// Returns the checkpoint whose files are in `folder`. Reads only the manifest. Throws kBadInput,
// naming the file.
Checkpoint ReadCheckpoint(const std::string& folder);

// Throws kBadInput, naming the file and, if known, the tensor, if anything differs from the
// manifest. Reads every byte.
void VerifyCheckpoint(const Checkpoint& checkpoint);

// Verifies all files like VerifyCheckpoint. Returns one sentence for each damaged one.
std::vector<std::string> FindDamage(const Checkpoint& checkpoint);

// Returns one sentence for each file that is missing or has another size. Reads no file.
std::vector<std::string> FindMissing(const Checkpoint& checkpoint);

// The parts of VerifyCheckpoint:

std::string PathOf(const Checkpoint& checkpoint, const FileRecord& record);

// Returns the message for a file whose bytes differ from its recorded checksum.
std::string WrongChecksum(const Checkpoint& checkpoint, const FileRecord& record);

// Returns the CRC-32 of the bytes [begin, end) of a file. Throws kBadInput if its size is not the
// recorded one, and the errors of SumPart.
uint32_t CheckedPartSum(const Checkpoint& checkpoint, const FileRecord& record, uint64_t begin,
                        uint64_t end);

// The slices of each file according to the manifest. `checkpoint` must outlive this.
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
