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

struct CheckpointContent {
  std::vector<StateFile> files;  // files of this rank
  Manifest manifest;  // without files, tensors and serial; the manifest of rank 0 is written
};

// Returns the `scope` of a CheckpointWriter: the job and its attempt.
std::string SaveScope(const WorkerEnv& env);

// One for each rank. Every rank writes files of its own; rank 0 makes the manifest and commits. If
// a rank fails, every rank throws, naming that rank; then no part of this checkpoint is visible,
// and earlier ones stay. All ranks pass the same tag.
class CheckpointWriter {
 public:
  static constexpr std::chrono::minutes kTimeout{30};  // limit of a save in the background

  // `group` and `folder` must outlive this. Only rank 0 commits to `folder`, which is the same on
  // all ranks. `scope`, the same on all ranks, distinguishes the saves of this start of the ranks
  // from other saves in the same folder.
  CheckpointWriter(const ProcessGroup& group, CheckpointFolder& folder, std::string scope)
      : group_(group), folder_(folder), scope_(std::move(scope)) {}
  // Cancels a save in the background.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Collective. Waits for a save in the background first. `keep`: see CheckpointFolder::Settle.
  void Save(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // Like Save, but returns once everything is copied. A thread does the rest. It waits for other
  // ranks only through the store, so the caller may use collectives meanwhile.
  void SaveInBackground(const CheckpointContent& content, const std::string& tag, int64_t keep);
  // Waits for a save in the background. If that has failed, throws its error, once.
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
