// Defines the state of a training run that the train loop and its hooks share once the ranks are
// connected.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "dslaunch/process_group.h"
#include "trainer/base/memory_bytes.h"
#include "trainer/base/stop.h"
#include "trainer/checkpoint/checkpointer.h"
#include "trainer/checkpoint/memory_copies.h"
#include "trainer/config/recipe.h"
#include "trainer/data/dataset.h"
#include "trainer/engine/activation_meter.h"
#include "trainer/parallel/stale_training.h"
#include "trainer/profile/monitors.h"
#include "trainer/train/memory_plan.h"
#include "trainer/train/progress.h"
#include "trainer/train/schedule.h"
#include "trainer/train/train_log.h"
#include "trainer/train/training_model.h"
#include "trainer/train/user_metrics.h"
#include "trainer/train/window.h"

namespace dslaunch {

// The parts of a training run on one rank, used by one thread. The referenced objects must outlive
// the struct.
struct TrainRun {
  const Recipe& recipe;
  const DataSplits& data;
  const UserMetrics& metrics;
  const Schedule& schedule;
  const TrainLog& log;
  // Group of StaleTraining with parallel.staleness, else the group of all replicas.
  ProcessGroup& group;
  TrainingModel& training_model;
  Progress& progress;
  Checkpointer* checkpointer;      // null if the run does not save checkpoints
  MemoryCopies* memory = nullptr;  // null without run.memory_checkpoint
  std::string start_text = {};     // line about how the run starts; empty without checkpoints
  int64_t samples_seen = 0;        // samples that earlier runs read since the first step
  std::optional<Clock::time_point> deadline;
  MemoryPlan plan;                 // planned memory, maximum over the ranks of each category
  StaleTraining* stale = nullptr;  // null without parallel.staleness
  // Measures the memory of all tensors, including the model's. Null if memory is not measured.
  const ActivationMeter* tensors = nullptr;

  StopDecision stop = {};        // decision to end training early, the same on all ranks
  int64_t bad_steps = 0;         // number of bad steps in a row up to the last exchange (window.h)
  Monitors* monitors = nullptr;  // null on ranks other than 0, and if the recipe has no monitors
  double data_wait_s = 0;        // seconds that steps waited for data; set at the end of training

  // Returns this rank's stop request. With parallel.staleness, returns kNone on ranks that are not
  // servers, because the servers decide when such ranks stop.
  StopRequest OwnStopRequest() const;
  MemoryBytes Memory() const;
  // Combines the windows of all ranks and returns the same result on each rank. Collective.
  AllWindows Exchange(const RankWindow& own) const;

  // Saves the state after `step`; does nothing without a checkpointer. Collective, like the
  // functions below. If a save fails, all ranks throw after they have left the group.
  void Save(int64_t step);
  // Waits until a save in the background has ended, then throws kBadInput on all ranks.
  [[noreturn]] void LeaveDiverged(const Divergence& diverged);
  void FinishSaving();  // waits for a save in the background, and ends saving
  // Evaluates the weights after `step` as a checkpoint would save them. Prints the result after
  // `prefix` and adds it to the metrics. Leaves the model in evaluation mode. A stop request ends
  // the evaluation without a result.
  void EvaluateOnTestData(int64_t step, const std::string& prefix);

 private:
  // Calls `action`. If it throws, leaves the group and rethrows.
  void LeaveOnFailure(const std::function<void()>& action);
};

}  // namespace dslaunch
