// All ranks write one checkpoint together.
#pragma once

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"
#include "proto/contract/worker_env.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/state.h"

namespace dslaunch {

// What goes into a checkpoint.
struct CheckpointContent {
  std::vector<StateFile> files;  // of this rank
  Manifest manifest;             // without files, tensors and serial; that of rank 0 is used
};

// For CheckpointWriter: the job and its attempt.
std::string SaveScope(const WorkerEnv& env);

// One per rank. Every rank writes files of its own; rank 0 makes the manifest and commits. If a
// rank fails, every rank throws, naming that rank; then nothing of this checkpoint can be seen, and
// those before it stay. All ranks give the same tag.
class CheckpointWriter {
 public:
  static constexpr std::chrono::minutes kTimeout{30};  // of a save in the background

  // Both must outlive this. Only rank 0 commits to `folder`, which is the same on all ranks.
  // `scope` tells the saves of this start of the ranks from those of others in the same folder; it
  // is the same on all ranks.
  CheckpointWriter(const ProcessGroup& group, CheckpointFolder& folder, std::string scope)
      : group_(group), folder_(folder), scope_(std::move(scope)) {}
  // Cancels a save in the background.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Collective. First waits for a save in the background. `keep`: see CheckpointFolder::Settle.
  void Save(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // The same, but returns when everything is copied. A thread does the rest; it waits for other
  // ranks by the store alone, so collectives may go on meanwhile.
  void SaveInBackground(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // Waits for a save in the background. Throws its failure, once.
  void Wait();
  // Whether a save in the background has failed; Wait will throw.
  bool failed() const { return failed_; }

 private:
  const ProcessGroup& group_;
  CheckpointFolder& folder_;
  const std::string scope_;
  std::atomic<bool> gives_up_ = false;
  std::atomic<bool> failed_ = false;
  std::future<void> under_way_;
};

}  // namespace dslaunch
