// The checkpoints of one run: where it starts, and what it leaves behind.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"
#include "proto/contract/worker_env.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// One per rank. Errors are TrainError: kBadInput for content and for contradictions between the
// recipe and the checkpoint, kIo for the disk.
class Checkpointer {
 public:
  // Chooses what this rank would resume from; rank 0 makes the folder and clears it of what killed
  // saves have left. `train_samples` is the size of the data set. Precondition: the recipe has a
  // checkpoint_dir.
  Checkpointer(const Recipe& recipe, const WorkerEnv& env, int64_t train_samples);
  // For reading weights only: changes nothing in the folder, takes a checkpoint of any data and
  // seed, and Load leaves the optimizer as it is.
  Checkpointer(const Recipe& recipe, const WorkerEnv& env);

  // Whether there is a checkpoint to load.
  bool found() const { return decision_.checkpoint.has_value(); }
  // Where the run starts; Load makes it true.
  Position start() const;
  int64_t samples_seen() const;
  // One line: what was chosen and why.
  const std::string& reason() const { return decision_.reason; }

  // Collective. Throws on every rank where the ranks chose differently, or chose to refuse.
  void Agree(ProcessGroup& group) const;

  // Brings the engine to start(). On every rank.
  void Load(EngineCore& engine) const;

  // Collective: saves the engine as the state after position.step, unless that step is the last one
  // saved or loaded. Throws on every rank. With run.async_save it returns when the state is copied;
  // what then fails is thrown by the next Save or Wait, as on every rank.
  void Save(const EngineCore& engine, const Position& position, int64_t samples_seen);

  // Until no save is under way.
  void Wait();
  // Whether one in the background has failed, which Wait will throw.
  bool failed() const { return writer_ && writer_->failed(); }

 private:
  // Whether the run goes on where the checkpoint was made.
  bool goes_on() const { return found() && !weights_only_; }
  void TakeWeightsOnly();
  void CheckFits() const;

  const Recipe& recipe_;
  WorkerEnv env_;
  std::optional<int64_t> train_samples_;  // nullopt: weights only
  CheckpointFolder folder_;
  ResumeDecision decision_;
  bool weights_only_ = false;
  std::string run_id_;
  int64_t saved_step_ = 0;
  std::unique_ptr<CheckpointWriter> writer_;  // made by the first save
};

}  // namespace dslaunch
