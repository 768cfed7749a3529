// The folder of --checkpoint_dir: one folder per checkpoint, named by its tag ("step_000120"), and
// the file `latest`, which holds the tag of the last one, as DeepSpeed has it. A folder under a tag
// is complete, whatever is killed when: it is written as tmp-... and renamed once all of it is on
// the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"

namespace dslaunch {

// --resume.
struct ResumeRequest {
  enum class Kind { kAuto, kTag, kNone };
  Kind kind = Kind::kAuto;
  std::string tag;     // for kTag
  std::string job_id;  // of this job
  bool restarted =
      false;  // this job's ranks ran before: the answer must not throw their steps away
};

struct Checkpoint {
  std::string folder;  // its own
  std::string tag;
  Manifest manifest;
};

struct ResumeDecision {
  enum class Kind { kResume, kFresh, kRefused };
  Kind kind = Kind::kFresh;
  std::optional<Checkpoint> checkpoint;  // for kResume
  std::string reason;                    // one line for people: what, and what was passed over
};

// Which checkpoints to try, the best first; pure. `whole` are those whose manifest can be read.
//   auto   the newest
//   TAG    that one; in a restarted job rather the newest that the job itself saved
//   none   none; in a restarted job the newest that the job itself saved
std::vector<Checkpoint> OrderCandidates(const ResumeRequest& request,
                                        std::vector<Checkpoint> whole);

// "step_000120"
std::string TagOf(int64_t step);

// Whether a checkpoint may be called this: a plain file name that means nothing else here.
bool IsTag(const std::string& tag);

// Saving is for one process at a time, choosing for any number of them. Errors are TrainError: kIo
// where the disk fails, kBadInput where content is wrong.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Makes the folder and removes what saves that were cut short have left; returns the names of
  // what it removed. While no save is under way.
  std::vector<std::string> Prepare() const;

  // Reads every byte of what it chooses and checks it. Does not throw for damage: kRefused where
  // going on would silently throw training away.
  ResumeDecision Choose(const ResumeRequest& request);

  // The same for a checkpoint that is asked for by its tag; with an empty one for that which
  // `latest` names, or, where it names none or a damaged one, for the newest. kRefused where there
  // are checkpoints and none of these is whole, or where a tag was given; kFresh where there are
  // none.
  ResumeDecision ChooseTag(const std::string& tag);

  // A new empty folder for the files of one checkpoint, which nothing takes for one.
  std::string Begin(const std::string& tag) const;
  // Removes what is not to become a checkpoint. Does not throw: what stays is removed by the next
  // Prepare.
  void Abandon(const std::string& begun) const;

  // Call it when all files are written and synced. Gives the checkpoint its serial number and its
  // tag; one that had the tag before is replaced, or is still there where this throws.
  void Commit(const std::string& begun, const std::string& tag, Manifest manifest);
  // Call it then: `latest` gets the tag. Removes those of the run that are older than the last
  // `keep` which are known to be whole: saved or chosen by this object.
  void Settle(const std::string& tag, const std::string& run_id, int64_t keep) const;

  // What stands in it by tag; only the manifests have been looked at.
  struct Damaged {
    std::string tag;
    std::string problem;
  };
  struct Listing {
    std::vector<Checkpoint> whole;
    std::vector<Damaged> damaged;
  };
  Listing List() const;
  std::string ReadLatest() const;  // the tag; empty where there is none

 private:
  // The first of `candidates` that is whole. Those that are not are added to `skipped`.
  std::optional<Checkpoint> FirstWhole(const std::vector<Checkpoint>& candidates,
                                       std::vector<std::string>& skipped);
  void Publish(const std::string& begun, const std::string& tag) const;
  void WriteLatest(const std::string& tag) const;
  void Prune(const std::string& run_id, int64_t keep) const;
  void Remove(const std::string& folder) const;
  std::string TemporaryName(const std::string& tag) const;

  std::string path_;
  std::set<int64_t> known_whole_;  // serial numbers
};

// The checkpoint whose files are in `folder`, of which only the manifest is looked at. Throws
// kBadInput, naming the file.
Checkpoint ReadCheckpoint(const std::string& folder);

// Throws kBadInput, naming file and, where it is known, tensor, if anything differs from what the
// manifest says. Reads every byte.
void VerifyCheckpoint(const Checkpoint& checkpoint);

// The same for all files: one sentence for each that is damaged.
std::vector<std::string> FindDamage(const Checkpoint& checkpoint);

// The same from the files' sizes alone.
std::vector<std::string> FindMissing(const Checkpoint& checkpoint);

}  // namespace dslaunch
