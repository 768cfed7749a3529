// Writes checkpoints to which all ranks contribute.
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

struct CheckpointContent {
  std::vector<StateFile> files;  // files that this rank writes
  // Manifest without files, tensors and serial; only rank 0's manifest is written.
  Manifest manifest;
};

// Returns the `scope` of a CheckpointWriter, which names the job and its attempt.
std::string SaveScope(const WorkerEnv& env);

// Writes a rank's part of checkpoints. Every rank writes its own files; rank 0 writes the manifest
// and commits. If a rank fails, every rank throws, naming that rank. In that case no part of the
// new checkpoint is visible, and earlier checkpoints are unchanged. All ranks must pass the same
// tag.
class CheckpointWriter {
 public:
  static constexpr std::chrono::minutes kTimeout{30};  // time limit of a background save

  // Creates a writer; `group` and `folder` must outlive it. `folder` is the same on all ranks, but
  // only rank 0 commits to it. `scope`, which is the same on all ranks, distinguishes the saves of
  // this attempt from other saves in the same folder.
  CheckpointWriter(const ProcessGroup& group, CheckpointFolder& folder, std::string scope)
      : group_(group), folder_(folder), scope_(std::move(scope)) {}
  // Cancels a background save and waits for its thread.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Saves a checkpoint, after waiting for a background save. Then removes old checkpoints of the
  // run, except the last `keep` that are known to be whole (CheckpointFolder::Settle). Collective.
  void Save(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // Saves like Save, but returns once the content is copied; a thread writes the copy. The thread
  // waits for other ranks only through the store, so the caller may use collectives meanwhile.
  void SaveInBackground(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // Waits for a background save. Throws the error of a failed save, but only once.
  void Wait();
  // Returns whether a background save has failed, so that Wait will throw.
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
