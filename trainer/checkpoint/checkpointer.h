// The checkpoints of one run of `dslaunch train`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"
#include "proto/contract/worker_env.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

class MemoryCopies;

// Enters into a manifest what a run of `dslaunch train` knows and its engine does not.
// `train_samples` is the size of the data set.
void DescribeRun(const Recipe& recipe, const WorkerEnv& env, int64_t train_samples,
                 const Position& position, int64_t samples_seen, Manifest& manifest);

// One for each rank. Errors are TrainError: kBadInput for content and for contradictions between
// the recipe and the checkpoint, kIo for the disk.
class Checkpointer {
 public:
  // Collective. Rank 0 makes the folder, takes its lease and removes the leftovers of interrupted
  // saves; then the ranks choose a checkpoint: the newest copy in `memory`, unless that is null or
  // the checkpoint in the folder that they would choose is of a later step. `train_samples` is the
  // size of the data set. Throws on every rank, after it has left the group. `recipe`, `group` and
  // `memory` must outlive this. Precondition: the recipe has a checkpoint_dir.
  Checkpointer(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group,
               int64_t train_samples, MemoryCopies* memory = nullptr);
  // Reads weights only: takes no lease, changes nothing in the folder and accepts a checkpoint of
  // any data and seed; Load does not change the optimizer. reason() begins with "weights from" or
  // "no weights".
  Checkpointer(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group);

  // Whether there is a checkpoint to load.
  bool found() const { return decision_.checkpoint.has_value(); }
  // The position from which the run starts after Load.
  Position start() const;
  int64_t samples_seen() const;
  // The manifest of the checkpoint to load; null if there is none.
  const Manifest* loaded() const { return found() ? &decision_.checkpoint->manifest : nullptr; }
  // One line: the choice and its reason.
  const std::string& reason() const { return decision_.reason; }

  // Sets Manifest::adapters of what Save writes. Called before Save in a run with `lora`.
  void DescribeAdapters(std::string record) { adapters_ = std::move(record); }

  // Brings the engine to start(). Collective.
  void Load(EngineCore& engine);

  // Writes the run's ids and adapters into a manifest.
  void Identify(Manifest& manifest) const;
  // Returns the tag of a checkpoint of the state after `step`.
  std::string TagAt(int64_t step) const;

  // Makes Save use only these ranks, which hold the whole state and include rank 0. `group` must
  // outlive this.
  void SaveWith(const ProcessGroup& group) { group_ = &group; }

  // Collective: saves the engine as the state after position.step, unless that step is the last one
  // saved or loaded. `loss` is the mean over the steps before, if it is known. Throws on every
  // rank: kBadInput if weights or buffers are no longer finite, so that they never replace finite
  // ones. With run.async_save it returns when the state is copied; a later failure is thrown by the
  // next Save or Wait, on every rank.
  void Save(const EngineCore& engine, const Position& position, int64_t samples_seen,
            std::optional<double> loss = std::nullopt);

  // The step of the newest checkpoint that was saved or loaded; 0 if there is none.
  int64_t saved_step() const { return saved_step_; }

  // Waits for a save in the background.
  void Wait();
  // Collective. Waits for a save in the background and releases the lease; no save may follow.
  // Throws on every rank.
  void Finish();
  // Whether a save in the background has failed; Wait will throw.
  bool failed() const { return writer_ && writer_->failed(); }

 private:
  // Whether the run continues the one that saved the checkpoint.
  bool goes_on() const { return found() && !weights_only_; }
  bool from_memory() const;
  std::string TakeFolder();
  void Choose();
  std::optional<ResumeDecision> ChooseFromMemory(const ResumeRequest& request,
                                                 const CheckpointFolder::Listing& listing);
  void Together(const std::function<void()>& action) const;
  void TakeWeightsOnly();
  void NameTags();
  void CheckFits() const;
  void CheckFinite(const EngineCore& engine, int64_t step) const;

  const Recipe& recipe_;
  WorkerEnv env_;
  const ProcessGroup* group_;
  std::optional<int64_t> train_samples_;  // nullopt to read weights only
  MemoryCopies* memory_ = nullptr;
  std::shared_ptr<FolderLease> lease_;  // lease on rank 0, null elsewhere
  CheckpointFolder folder_;
  ResumeDecision decision_;
  bool weights_only_ = false;
  std::string run_id_;
  std::string started_by_;  // Manifest::started_by of this run's checkpoints
  std::string tag_suffix_;  // suffix of tags, equal on all ranks
  std::string adapters_;    // Manifest::adapters of this run's checkpoints
  int64_t saved_step_ = 0;
  std::set<std::string> never_finite_;  // tensors of this rank that hold inf or nan from the start
  std::unique_ptr<CheckpointWriter> writer_;  // made by the first save
};

}  // namespace dslaunch
