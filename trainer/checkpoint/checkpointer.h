// Saves and loads the checkpoints of a run of `dslaunch train`.
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

// Sets the fields of a manifest that describe the run of `dslaunch train` and that the engine
// cannot set. `train_samples` is the size of the data set.
void DescribeRun(const Recipe& recipe, const WorkerEnv& env, int64_t train_samples,
                 const Position& position, int64_t samples_seen, Manifest& manifest);

// Saves and loads a rank's checkpoints. Throws TrainError: kBadInput for wrong content and for
// contradictions between the recipe and the checkpoint, kIo if the disk fails.
class Checkpointer {
 public:
  // Chooses a checkpoint. Collective. Rank 0 creates the folder, takes its lease and removes the
  // leftovers of interrupted saves. Then the ranks choose the newest copy in `memory`, unless
  // `memory` is null or the folder's best checkpoint is of a later step. `train_samples` is the
  // size of the data set. On an error every rank leaves the group and throws. `recipe`, `group` and
  // `memory` must outlive this object. Precondition: the recipe has a checkpoint_dir.
  Checkpointer(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group,
               int64_t train_samples, MemoryCopies* memory = nullptr);
  // Chooses a checkpoint of which only the weights are read. Takes no lease, does not change the
  // folder, and accepts a checkpoint of any data and seed. Load then does not change the optimizer.
  // reason() begins with "weights from" or "no weights".
  Checkpointer(const Recipe& recipe, const WorkerEnv& env, ProcessGroup& group);

  // Returns whether there is a checkpoint to load.
  bool found() const { return decision_.checkpoint.has_value(); }
  // Returns the position from which the run starts after Load.
  Position start() const;
  int64_t samples_seen() const;
  // Returns the manifest of the checkpoint to load; null if there is no checkpoint.
  const Manifest* loaded() const { return found() ? &decision_.checkpoint->manifest : nullptr; }
  // Returns one line with the choice and its reason.
  const std::string& reason() const { return decision_.reason; }

  // Sets Manifest::adapters of the checkpoints that Save writes. Call it before Save in a run with
  // `lora`.
  void DescribeAdapters(std::string record) { adapters_ = std::move(record); }

  // Loads the checkpoint into the engine, if there is one. Collective.
  void Load(EngineCore& engine);

  // Writes the run's ids and adapters into a manifest.
  void Identify(Manifest& manifest) const;
  // Returns the tag of a checkpoint of the state after `step`.
  std::string TagAt(int64_t step) const;

  // Makes Save use only the ranks of `group`, which must hold the whole state and include rank 0.
  // `group` must outlive this object.
  void SaveWith(const ProcessGroup& group) { group_ = &group; }

  // Saves the engine as the state after position.step, unless that step was the last one saved or
  // loaded. Collective. `loss` is the mean loss over the preceding steps; nullopt if unknown.
  // Throws on every rank: kBadInput if weights or buffers are no longer finite, so that they never
  // replace finite ones. With run.async_save it returns when the state is copied, and the next Save
  // or Wait throws a later failure on every rank.
  void Save(const EngineCore& engine, const Position& position, int64_t samples_seen,
            std::optional<double> loss = std::nullopt);

  // Returns the step of the newest checkpoint that was saved or loaded; 0 if there is no such
  // checkpoint.
  int64_t saved_step() const { return saved_step_; }

  // Waits for a background save. Throws the error of a failed save.
  void Wait();
  // Waits for a background save and releases the lease. No save may follow. Collective; throws on
  // every rank.
  void Finish();
  // Returns whether a background save has failed, so that Wait will throw.
  bool failed() const { return writer_ && writer_->failed(); }

 private:
  // Returns whether this run continues the run that saved the checkpoint.
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
  std::optional<int64_t> train_samples_;  // size of the data set; nullopt if only weights are read
  MemoryCopies* memory_ = nullptr;
  std::shared_ptr<FolderLease> lease_;  // lease of the folder on rank 0; null on other ranks
  CheckpointFolder folder_;
  ResumeDecision decision_;
  bool weights_only_ = false;
  std::string run_id_;
  std::string started_by_;  // Manifest::started_by of this run's checkpoints
  std::string tag_suffix_;  // suffix of this run's tags, equal on all ranks
  std::string adapters_;    // Manifest::adapters of this run's checkpoints
  int64_t saved_step_ = 0;
  // Names of this rank's tensors that had inf or nan when the run started.
  std::set<std::string> never_finite_;
  std::unique_ptr<CheckpointWriter> writer_;  // writer of checkpoints; null before the first save
};

}  // namespace dslaunch
