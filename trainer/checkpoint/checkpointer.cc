#include "trainer/checkpoint/checkpointer.h"

#include <cstdio>
#include <random>

#include "trainer/checkpoint/agreement.h"
#include "trainer/checkpoint/engine_state.h"
#include "trainer/optim/optimizer.h"
#include "trainer/train_error.h"

namespace dslaunch {
namespace {

ResumeRequest MakeRequest(const std::string& resume, const WorkerEnv& env) {
  ResumeRequest request;
  request.kind = resume == "auto"   ? ResumeRequest::Kind::kAuto
                 : resume == "none" ? ResumeRequest::Kind::kNone
                                    : ResumeRequest::Kind::kTag;
  request.tag = resume;
  request.job_id = env.job_id;
  request.restarted = env.epoch > 1;
  return request;
}

std::string NewRunId() {
  std::random_device random;
  char id[17];
  std::snprintf(id, sizeof id, "%08x%08x", random(), random());
  return id;
}

// Empty where the program, not the recipe, gives it.
std::string OptimizerType(const Recipe& recipe) {
  return recipe.engine.optimizer ? OptimizerTypeName(recipe.engine.optimizer->type) : "";
}

}  // namespace

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env, int64_t train_samples)
    : recipe_(recipe),
      env_(env),
      train_samples_(train_samples),
      folder_(recipe.run.checkpoint_dir) {
  std::vector<std::string> removed;
  if (env_.rank == 0) removed = folder_.Prepare();
  decision_ = folder_.Choose(MakeRequest(recipe.run.resume, env));
  for (const std::string& name : removed) {
    decision_.reason += "; removed " + name + ", left by a save that was cut short";
  }
  saved_step_ = start().step;
  run_id_ = decision_.checkpoint ? decision_.checkpoint->manifest.run_id : NewRunId();
  CheckFits();
}

Checkpointer::Checkpointer(const Recipe& recipe, const WorkerEnv& env)
    : recipe_(recipe), env_(env), folder_(recipe.run.checkpoint_dir) {
  decision_ = folder_.Choose(MakeRequest(recipe.run.resume, env));
}

// What would make the position mean other samples than those it stands for.
void Checkpointer::CheckFits() const {
  if (!decision_.checkpoint) return;
  const Checkpoint& found = *decision_.checkpoint;
  const auto differ = [&](const std::string& what, const std::string& way_out) {
    throw TrainError(ExitCode::kBadInput, found.folder + " was saved with " + what + "; " +
                                              way_out + " or --resume none");
  };
  if (found.manifest.seed != recipe_.run.seed) {
    const std::string seed = std::to_string(found.manifest.seed);
    differ("the seed " + seed + ", this run has " + std::to_string(recipe_.run.seed),
           "give --seed " + seed);
  }
  if (found.manifest.train_samples != *train_samples_) {
    differ(std::to_string(found.manifest.train_samples) + " training samples, " +
               recipe_.data.path + " has " + std::to_string(*train_samples_),
           "give the data it was trained on");
  }
  const std::string optimizer = OptimizerType(recipe_);
  if (!optimizer.empty() && !found.manifest.optimizer.empty() &&
      found.manifest.optimizer != optimizer) {
    differ("the optimizer " + found.manifest.optimizer + ", this run has " + optimizer,
           "give that one");
  }
}

Position Checkpointer::start() const {
  return decision_.checkpoint ? decision_.checkpoint->manifest.position : Position{};
}

int64_t Checkpointer::samples_seen() const {
  return decision_.checkpoint ? decision_.checkpoint->manifest.samples_seen : 0;
}

void Checkpointer::Agree(ProcessGroup& group) const {
  // Each rank fills its own place, so the sum is everybody's.
  const auto own = static_cast<size_t>(2 * group.rank());
  std::vector<double> values(2 * static_cast<size_t>(group.world_size()));
  const SeenCheckpoint seen = Seen(decision_);
  values[own] = seen.step;
  values[own + 1] = seen.identity;
  group.AllReduceSum(values);
  std::vector<SeenCheckpoint> all;
  for (size_t i = 0; i < values.size(); i += 2) all.push_back({values[i], values[i + 1]});
  std::string problem = Disagreement(folder_.path(), all);
  if (problem.empty() && decision_.kind == ResumeDecision::Kind::kRefused) {
    problem = decision_.reason;
  }
  if (problem.empty()) return;
  group.Finish();  // so that no rank takes another's leaving for a loss
  throw TrainError(ExitCode::kBadInput, problem);
}

void Checkpointer::Load(EngineCore& engine) const {
  if (!decision_.checkpoint) return;
  RestoreState(*decision_.checkpoint, {.weights_only = !train_samples_}, engine);
}

void Checkpointer::Save(const EngineCore& engine, const Position& position, int64_t samples_seen) {
  if (position.step == saved_step_) return;
  CheckpointContent content = CaptureState(engine);
  Manifest& manifest = content.manifest;
  manifest.run_id = run_id_;
  manifest.job_id = env_.job_id;
  manifest.position = position;
  manifest.seed = recipe_.run.seed;
  manifest.train_samples = *train_samples_;
  manifest.samples_seen = samples_seen;
  if (!writer_) writer_ = std::make_unique<CheckpointWriter>(engine.group(), folder_);
  writer_->Save(content, TagOf(position.step), recipe_.run.keep_checkpoints);
  saved_step_ = position.step;
}

}  // namespace dslaunch
