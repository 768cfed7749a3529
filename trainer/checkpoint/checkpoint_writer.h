// All ranks write one checkpoint together.
#pragma once

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/state.h"

namespace dslaunch {

// What goes into a checkpoint.
struct CheckpointContent {
  std::vector<StateFile> files;  // of this rank
  Manifest manifest;             // but for files, tensors and serial; rank 0's counts
};

// One per rank. Every rank writes files of its own; rank 0 puts the manifest together and commits.
// What a rank fails with is thrown on every rank, naming that rank; then nothing of this checkpoint
// can be seen, and those before it stay. Tags are rank 0's.
class CheckpointWriter {
 public:
  static constexpr std::chrono::minutes kTimeout{30};  // of a save in the background

  // Both must outlive this. Only rank 0 commits to `folder`; it must be the same on all ranks.
  CheckpointWriter(const ProcessGroup& group, CheckpointFolder& folder)
      : group_(group), folder_(folder) {}
  // Gives up on a save under way.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Collective. First waits for one under way. `keep` as CheckpointFolder::Settle has it.
  void Save(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // The same, but returns when everything is copied; a thread does the rest, which waits for other
  // ranks by the store alone, so that collectives may go on meanwhile.
  void SaveInBackground(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // Until no save is under way. Throws what it failed with, which is then forgotten.
  void Wait();
  // Whether the one in the background has failed, which Wait will throw.
  bool failed() const { return failed_; }

 private:
  const ProcessGroup& group_;
  CheckpointFolder& folder_;
  std::atomic<bool> gives_up_ = false;
  std::atomic<bool> failed_ = false;
  std::future<void> under_way_;
};

}  // namespace dslaunch
