// Loads the checkpoint of run.resume_from, from which a run of `dslaunch train` starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/process_group.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/config/recipe.h"
#include "trainer/resume/resume_source.h"

namespace dslaunch {

// The checkpoint from which a run starts. Each rank has one object. Functions throw TrainError on
// every rank.
class RunStart {
 public:
  // Opens the checkpoint and decides what to load from it: everything, or only the weights if
  // run.load_module_only is set or the checkpoint has no optimizer state. `train_samples` is the
  // size of the data set; 0 to load only the weights, for a program that does not train. Leaves the
  // group before it throws. `recipe` must outlive this object. Collective.
  RunStart(const Recipe& recipe, ProcessGroup& group, int64_t train_samples);

  // Returns the position from which the run starts after Load().
  const Position& position() const { return position_; }
  int64_t samples_seen() const { return samples_seen_; }
  const Manifest& manifest() const { return source_.checkpoint.manifest; }
  // Loads the checkpoint's state into the engine. Collective.
  void Load(EngineCore& engine);
  // Returns one line with the checkpoint and the state that is resumed from it. The line is
  // complete after Load().
  std::string reason() const;

 private:
  void PlaceInData(int64_t train_samples);

  const Recipe& recipe_;
  ResumeSource source_;
  bool trains_ = true;
  bool weights_only_ = false;
  Position position_;
  int64_t samples_seen_ = 0;
  std::string data_;  // clause about the data's position; empty if only weights are loaded
  std::vector<std::string> notes_;
};

}  // namespace dslaunch
